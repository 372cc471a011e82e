// Package store keeps what must survive a crash. [Engine] is the interface of a storage engine;
// [RecordStore] holds what both share. The package never depends on a particular engine, never
// folds telemetry and never sees a secret in the clear. DESIGN.md lists the streams.
package store
