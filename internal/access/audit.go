package access

import "time"

// Actor is the caller of an admin operation: an operator, or the holder of the admin key.
type Actor struct {
	Name string // the caller's name in the audit
	// Admin is set if the caller presented the admin key. Only this field grants the rights of the
	// admin key; the name "admin" grants none.
	Admin bool
	// ReadOnly is set if the caller may see what an operator sees, but may change nothing.
	ReadOnly bool
}

// Admin is the holder of the admin key.
var Admin = Actor{Name: AdminName, Admin: true}

// Event is one entry of the audit: which caller did what to which object, and when. It is written
// before the operation; if it cannot be written, the operation is not carried out.
type Event struct {
	Time    time.Time `json:"time"`
	Actor   string    `json:"actor"`            // the operator's name; "admin" for the admin key
	Admin   bool      `json:"admin"`            // the admin key was presented; the name alone does not prove that
	Action  string    `json:"action"`           // such as token.issue
	Object  string    `json:"object"`           // a token's ID or a source's name; never a secret
	Detail  string    `json:"detail,omitempty"` // a description as text, such as the old and the new rate
	Outcome string    `json:"outcome"`          // "intended"; then "failed" if the operation failed
}

// Reserved reports whether the event may use the room that is kept for taking rights away, when there
// is no other room left.
func (e *Event) Reserved() bool {
	switch e.Action {
	case "token.revoke", "source.remove", "operator.remove", "vehicle.forget":
		return true
	}
	return e.Admin
}
