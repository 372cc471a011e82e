// Package cluster is the storage engine of many machines, on an external NATS JetStream cluster. It
// implements streams, atomic batches, cursors, leases and feeds. DESIGN.md beside this file
// explains the engine as a whole.
//
// A call that stores something returns nil only once the data is on a quorum of disks. The package
// must never fold telemetry and must never see a secret.
package cluster
