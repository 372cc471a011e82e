// Package console serves the operator's pages: the fleet, one vehicle, the roads, tokens, sources,
// operators, the audit, and the login.
//
// All pages are rendered on the server and work without JavaScript, except live updates
// (server-sent events) and the map. An operator's changes go through package ops, which the API
// uses too; this package must not make a change by itself. A secret passes through once, into the
// page that shows it: this package must not keep or log a secret, or put one into a URL. Without a
// session, it may show only the login and its assets.
//
// A fleet may have millions of vehicles. So a page may walk through the table in memory at most
// once. All readers of the fleet page share the result of one walk. Each request for the list of
// vehicles causes a walk, but package ops limits the number of concurrent walks. Reading retained
// telemetry is limited in time and in the number of concurrent reads.
package console
