// Package store keeps what must survive a crash. [Engine] is the interface of a storage engine;
// [RecordStore] holds what both engines share: tokens, sources, operators, audit, usage,
// forgetting, roads, backup and restore. The package never depends on a particular engine, never
// folds telemetry and never sees a secret in the clear. DESIGN.md lists the streams, and describes
// durability, forgetting, backup and restore.
package store
