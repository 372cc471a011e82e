package access

import "errors"

// Errors of the store of records.
var (
	// ErrNotFound says that no token has this ID, or that no source has this name.
	ErrNotFound = errors.New("there is no such record")
	// ErrExists says that a source of this name exists and has not been removed.
	ErrExists = errors.New("the name is taken")
	// ErrBusy says that a restore is in progress. Only one can run at a time.
	ErrBusy = errors.New("a restore is in progress: wait until it ends")
)
