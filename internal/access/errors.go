package access

import "errors"

// Errors of the store of records.
var (
	// ErrNotFound means that the token, source or operator does not exist, or that the vehicle to
	// be allowed again is not forgotten.
	ErrNotFound = errors.New("there is no such record")
	// ErrExists means that a source or an operator of this name exists and has not been removed.
	ErrExists = errors.New("the name is taken")
	// ErrDamaged means that damaged files of the store prevent an answer. Another attempt fails in
	// the same way.
	ErrDamaged = errors.New("the part of the stored data that this needs is damaged")
	// ErrNotEmpty means that the service has tokens, sources or operators already.
	ErrNotEmpty = errors.New("a backup is restored into an empty service only, and this one has tokens, sources or " +
		"operators: start a new service for it, or compare the two with carstate restore --compare")
	// ErrBusy means that a restore is in progress. Only one can run at a time.
	ErrBusy = errors.New("a restore is in progress: wait until it ends")
)
