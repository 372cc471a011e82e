// Package store keeps what must not be lost. [Engine] is the seam between the service and
// the engine that keeps it; [RecordStore] is what both engines share: tokens, sources,
// operators, audit, usage, forgetting, roads, backup and restore. The package must never
// know an engine, judge telemetry or see a secret.
//
// Six streams hold everything:
//
//	TELEMETRY  telemetry.P                 packed samples of partition P, as they were acknowledged
//	STATES     state.P.VID, cursor.P       last state of each vehicle; how far partition P is folded
//	TOKENS     token.ID, tokenset.ID.N     who may read, and the vehicles of a large grant
//	           tokenuse.ID.NODE            what a node counted for a token, by day
//	SOURCES    source.NAME, sourceset.NAME.N
//	           operator.NAME               who runs the service
//	           tombstone.HASH              which vehicle was forgotten, under a keyed hash
//	AUDIT      audit.event                 who did what
//	ROADS      road.TILE                   how stretches of road are driven in light traffic
//
// Every record carries a schema version and a checksum of its own, which are verified
// before it is used. The contents of ROADS are learned again, and their damage ends no
// start.
package store
