// Package query answers the two operations of the service, how a vehicle drives and whether its
// throttle system is healthy, from the fleet table in memory. It also serves the public
// documentation. DESIGN.md follows one request from accept to answer, and has the order of the
// checks; the scripts in testdata show the bytes.
//
// This package must never do I/O while answering. It must never write a request, or any part of one
// except the vid, into a response, a log or a metric, because the access token is part of the
// request line. It must never let a client see whether a vehicle exists that is not in the grant of
// the client's token.
package query
