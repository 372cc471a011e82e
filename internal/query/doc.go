// Package query answers the two operations of the service, how a vehicle drives and whether its
// throttle system is healthy, from the fleet table in memory. It also serves the public
// documentation. DESIGN.md follows one request and has the order of the checks; the scripts in
// testdata show the bytes.
//
// This package must never do I/O while answering, nor write any part of a request except the vid
// into a response, a log or a metric, because the request line has the access token. A client must
// never see whether a vehicle exists that its token does not grant.
package query
