package access

import "time"

// Event is one line of the audit: who did what to what, when. It is written
// before the deed; a deed that cannot be audited is not done.
type Event struct {
	Time    time.Time `json:"time"`
	Actor   string    `json:"actor"`            // the operator's name; "admin" for the admin key
	Action  string    `json:"action"`           // such as "token.issue"
	Object  string    `json:"object"`           // a token's ID or a source's name; never a secret
	Detail  string    `json:"detail,omitempty"` // for people
	Outcome string    `json:"outcome"`          // "intended", then "failed" if the deed failed
}
