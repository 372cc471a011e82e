package access

import "errors"

// Errors of whoever keeps the records.
var (
	// ErrNotFound says that there is no token of this ID, or no source of
	// this name.
	ErrNotFound = errors.New("there is no such record")
	// ErrExists says that a source of this name exists and was not removed.
	ErrExists = errors.New("the name is taken")
	// ErrBusy says that a restore is under way, besides which there can be no
	// other.
	ErrBusy = errors.New("a restore is under way: wait for its end")
)
