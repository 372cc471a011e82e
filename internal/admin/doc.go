// Package admin is the operator's listener: the API that calls the operations of
// package ops, the console's pages, and the health and metrics endpoints.
//
// Secrets pass through here once, in the answer that shows them to the operator; this
// package must never log one, store one or put one into an error.
//
// /healthz, /readyz and /metrics need no login and therefore must never show a
// vehicle, a developer's name or a token.
package admin
