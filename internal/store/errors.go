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
	// ErrOverloaded means that more samples wait than the disk takes.
	ErrOverloaded = errors.New("too many samples wait to be stored")
	// ErrBacklog means that derive lags behind so far that storing more would endanger
	// what was acknowledged.
	ErrBacklog = errors.New("too many stored samples wait to be judged")
	// ErrReplaced means that a stream is not the one that was read before, so that the
	// copy made from it must be thrown away. A new start makes another.
	ErrReplaced = errors.New("the stream was replaced")
	// ErrStop ends a scan that goes on after other errors.
	ErrStop = errors.New("the scan was stopped")
)
