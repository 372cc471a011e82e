// Package admin implements the operator's listener: the API for the operations of package ops, the
// console's pages, health and metrics. See DESIGN.md.
//
// A secret passes through once, in the response that shows it, and must never be logged, stored or
// put into an error. /healthz, /readyz and /metrics need no login, so they must never show a
// vehicle, a developer's name or a token.
package admin
