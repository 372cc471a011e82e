// Package admin implements the operator's listener: the API for the operations of package ops, the
// console's pages, and the health and metrics endpoints. See DESIGN.md.
//
// A secret passes through this package once, in the response that shows it to the operator. This
// package must never log a secret, store one, or put one into an error.
//
// /healthz, /readyz and /metrics need no login, so they must never show a vehicle, a developer's
// name or a token.
package admin
