// Package cluster is the engine of package store for many machines, on an external NATS
// JetStream cluster. It knows streams, atomic batches, cursors and feeds.
//
// STATES, TOKENS and SOURCES also carry a heartbeat record each, by which every node
// knows how old its copy may be, and STATES the leases of the nodes that fold.
//
// Every call that stores something returns nil only once it is on a quorum of disks. The
// package must never judge telemetry and must never see a secret.
package cluster
