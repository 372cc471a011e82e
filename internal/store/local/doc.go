// Package local is the storage engine of one machine: one Pebble database in the data directory,
// which one process owns. See DESIGN.md beside this file.
//
// # Keys
//
// The first byte of a key says what the key holds:
//
//	L  partition, sequence    telemetry: the time of storing and a sealed group of samples
//	S, T, O, R  keyed hash    STATES (checkpoints), TOKENS, SOURCES, ROADS, one record per subject
//	A  sequence               AUDIT
//	M  letter                 the last sequence of a stream
//
// Names occur only in values. Pebble copies keys to places that no compaction rewrites soon, such
// as the table bounds in the manifest, and the name of a forgotten vehicle must not remain there.
// The hash is the first 16 bytes of HMAC-SHA-256 of the subject, under a key of the data directory.
package local
