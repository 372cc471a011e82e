// Package console is the operator's pages: the fleet, one vehicle, tokens,
// sources, operators, the audit, and the login before them.
//
// Every page is made on the server and works without script, but for what comes
// live over server-sent events. What an operator does goes through package ops,
// as a call of the API does; the package must do none of it by itself. A secret passes
// through once, into the page that shows it: nothing here may keep or log one, or
// put one into an address. Nothing may be shown to who is not logged in, but the
// login and what it looks like.
//
// A fleet may be of millions: no page may cost more for it than one walk through
// the table in memory, and that not for every reader. What is read of the retained
// telemetry is bounded in time, and in how much of it is read at once.
package console
