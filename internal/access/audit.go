package access

import "time"

// Actor is the caller of an admin operation: an operator, or the holder of the admin key.
type Actor struct {
	Name string
	// Admin alone grants the rights of the admin key; the name "admin" grants none.
	Admin bool
	// ReadOnly actors see what an operator sees, and change nothing.
	ReadOnly bool
}

var Admin = Actor{Name: AdminName, Admin: true}

// Event is one entry of the audit. It is written before the operation; if it cannot be written, the
// operation is not carried out.
type Event struct {
	Time    time.Time `json:"time"`
	Actor   string    `json:"actor"`  // "admin" for the admin key
	Admin   bool      `json:"admin"`  // the name alone does not prove it
	Action  string    `json:"action"` // such as token.issue
	Object  string    `json:"object"` // a token's ID, for example; never a secret
	Detail  string    `json:"detail,omitempty"`
	Outcome string    `json:"outcome"` // "intended"; then "failed" if it failed
}

// Reserved reports whether the event may use the room that is kept for taking rights away.
func (e *Event) Reserved() bool {
	switch e.Action {
	case "token.revoke", "source.remove", "operator.remove", "vehicle.forget":
		return true
	}
	return e.Admin
}
