// Package local is the engine of one machine: everything is kept in one Pebble database in
// the data directory, and one process owns it.
//
// # Keys
//
// A key begins with a letter of what it holds:
//
//	L  partition, sequence    telemetry: when it was stored and a sealed group of samples
//	C  partition              cursor: all telemetry up to this sequence is folded
//	S  keyed hash of subject  STATES, one record a vehicle
//	V  keyed hash of subject  answers of a state, so that a start reads no states
//	T, O, R  keyed hash       TOKENS, SOURCES, ROADS, one record a subject
//	A  sequence               AUDIT
//	M  letter                 the last sequence of a stream
//
// Names stand in values only. Keys are copied into places that no compaction reaches soon,
// such as the bounds of tables in the manifest, and a name of a forgotten vehicle must not
// stay there. The hash is HMAC-SHA-256 under a key of the data directory, 16 bytes of it.
//
// # Durability
//
// All waiting samples are stored by one batch with one sync of the write-ahead log. A fold
// stores its states and its cursor in one batch that nobody waits for: its samples are on
// disk, so that a start after a crash folds them again. For the same reason a folded state
// is an answer before it is stored.
//
// # Failure
//
// Pebble ends the process when it cannot commit. Here its fatal errors end writing instead:
// the process goes on answering from memory until the disk takes writes again, and then
// reports a failure, so that its supervisor starts it again.
package local
