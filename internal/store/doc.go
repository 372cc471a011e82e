// Package store keeps what must survive a crash. [Engine] is the interface between the service
// and the storage engine. [RecordStore] holds the parts that both engines share: tokens,
// sources, operators, audit, usage, forgetting, roads, backup and restore. The package never
// depends on a particular engine, never folds telemetry and never sees a secret in the clear.
//
// Six streams hold all records:
//
//	TELEMETRY  telemetry.P                 packed samples of partition P, as they were acknowledged
//	STATES     state.P.VID, cursor.P       last state of each vehicle; how far partition P is folded
//	TOKENS     token.ID, tokenset.ID.N     tokens, and the vehicles of a large grant
//	           tokenuse.ID.total           calls that all nodes counted for a token
//	SOURCES    source.NAME, sourceset.NAME.N
//	           operator.NAME               operators of the service
//	           tombstone.HASH              forgotten vehicles, each by a keyed hash
//	AUDIT      audit.event                 audited operations
//	ROADS      road.TILE                   how stretches of road are driven in light traffic
//
// Every record carries a schema version and its own checksum. DESIGN.md describes durability,
// forgetting, erasing, backup and restore.
package store
