// Package cluster is the engine of package store on NATS JetStream, embedded in the
// process or outside of it behind the same code. It knows streams, atomic batches,
// cursors and feeds.
//
// STATES, TOKENS and SOURCES also carry a heartbeat record each, by which every node
// knows how old its copy may be, and STATES the leases of the nodes that fold.
//
// Every call that stores something returns nil only once it is on disk (on a quorum of
// disks on a cluster), unless the operator chose a sync interval. The package must never
// judge telemetry and must never see a secret.
package cluster
