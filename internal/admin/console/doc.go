// Package console serves the operator's pages.
//
// They are rendered on the server and work without JavaScript, except live updates (server-sent
// events) and the map. An operator's changes go through package ops. A secret passes through once,
// into the page that shows it: this package must not keep or log one, or put it into a URL. Without
// a session, it may show only the login and its assets.
//
// A fleet may have millions of vehicles, so a page may walk through the table in memory at most
// once, and all readers of the fleet page share one walk. Package ops limits concurrent walks for
// the list of vehicles. Reading telemetry is limited in time and in number.
package console
