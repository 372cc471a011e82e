// Package cluster keeps what must not be lost: it is the service's view of NATS
// JetStream, embedded in the process or outside of it behind the same code.
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
// STATES, TOKENS and SOURCES also carry a heartbeat record each, by which every
// node knows how old its copy may be.
//
// The contents of ROADS are learned again, and their damage ends no start. All else is verified
// before it is used.
//
// Every call that stores something returns nil only once it is on disk (on a
// quorum of disks on a cluster), unless the operator chose a sync interval.
// Every record carries a schema version and a checksum of its own. The package
// must never judge telemetry and must never see a secret.
package cluster
