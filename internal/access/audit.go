package access

import "time"

type Actor struct {
	Name string
	// Admin alone grants the rights of the admin key; the name "admin" grants none.
	Admin    bool
	ReadOnly bool
}

var Admin = Actor{Name: AdminName, Admin: true}

// Event is written before its operation, which is not carried out if the write fails.
type Event struct {
	Time    time.Time `json:"time"`
	Actor   string    `json:"actor"`  // "admin" for the admin key
	Admin   bool      `json:"admin"`  // the name alone does not prove it
	Action  string    `json:"action"` // such as token.issue
	Object  string    `json:"object"` // never a secret
	Detail  string    `json:"detail,omitempty"`
	Outcome string    `json:"outcome"` // "intended"; if the operation fails, a second event has "failed"
}

// Reserved reports whether an event is stored even if little disk space is left.
func (e *Event) Reserved() bool {
	switch e.Action {
	case "token.revoke", "source.remove", "operator.remove", "vehicle.forget", "backup.take":
		return true
	}
	return e.Admin
}
