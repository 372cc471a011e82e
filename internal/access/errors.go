package access

import "errors"

var (
	// no such credential, or the vehicle to be allowed is not forgotten
	ErrNotFound  = errors.New("there is no such record")
	ErrExists    = errors.New("the name is taken")
	ErrNotErased = errors.New("the vehicle is not erased yet")
	// ErrDamaged lasts: another attempt fails, too.
	ErrDamaged  = errors.New("the part of the stored data that this needs is damaged")
	ErrNotEmpty = errors.New("a backup is restored into an empty service only, and this one has tokens, sources or " +
		"operators: start a new service for it, or compare the two with carstate restore --compare")
	ErrBusy = errors.New("a restore is in progress: wait until it ends")
)
