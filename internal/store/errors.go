// Package store is what the rest of the service knows of the store, whichever
// engine keeps it. It holds the errors that callers treat in a way of their own,
// and must never know an engine.
package store

import "errors"

var (
	// ErrHeld means that another node owns the partition and may keep it. The caller
	// asks again soon, because that node is about to release it.
	ErrHeld = errors.New("another node has the partition")
	// ErrRecalled means that a forget or a restore has changed stored states of the
	// partition. Its owner takes it again at once. Only what was not committed is
	// folded again.
	ErrRecalled = errors.New("its states were changed by a forget or a restore")
	// ErrFenced means that another node has taken the partition. Nothing was stored,
	// and the caller must drop the partition.
	ErrFenced = errors.New("another node has taken the partition")
	// ErrConflict means that others changed a record each time that the caller was
	// about to. Nothing was stored.
	ErrConflict = errors.New("the record is being changed by others: try again")
)
