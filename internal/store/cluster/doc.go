// Package cluster is the storage engine of many machines, on an external NATS JetStream cluster.
// See DESIGN.md beside this file.
//
// A call that stores returns nil only once the data is on a quorum of disks. The package must never
// fold telemetry or see a secret.
package cluster
