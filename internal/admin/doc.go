// Package admin is the operator's side of the service: the API that issues and
// revokes tokens and adds and removes sources, the health and metrics
// endpoints, the Go [Client] of that API, and the key that opens it.
//
// The API stands on one rule: the audit comes first. An event is stored before
// each deed, and a deed that cannot be audited is not done. Secrets pass through
// here once, in the answer that shows them to the operator; this package must
// never log one, store one or put one into an error.
//
// /healthz, /readyz and /metrics need no login and therefore must never show a
// vehicle, a developer's name or a token.
package admin
