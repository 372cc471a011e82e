package access

import "time"

// Actor is the caller who was identified by a key.
type Actor struct {
	Name string // as the audit has it
	// Admin is set for the holder of the admin key alone. No right follows from the name.
	Admin bool
}

// Admin is the holder of the admin key.
var Admin = Actor{Name: AdminName, Admin: true}

// Event is one line of the audit: who did what to what, when. It is written
// before the deed; a deed that cannot be audited is not done.
type Event struct {
	Time    time.Time `json:"time"`
	Actor   string    `json:"actor"`            // the operator's name; "admin" for the admin key
	Admin   bool      `json:"admin"`            // the admin key was shown: the name alone proves nothing
	Action  string    `json:"action"`           // such as "token.issue"
	Object  string    `json:"object"`           // a token's ID or a source's name; never a secret
	Detail  string    `json:"detail,omitempty"` // for people
	Outcome string    `json:"outcome"`          // "intended", then "failed" if the deed failed
}
