// Package query answers the two operations of the service over HTTP/1.1: how a vehicle drives, and
// whether its throttle system is healthy. The result of an operation for one vehicle is called a
// verdict. The package also serves the public documentation, which is embedded and rendered once,
// at the start (docs.go and the directory docs).
//
// The answerer (answer.go and the files beside it) knows no sockets: it takes a parsed request, and
// produces status, headers and body without allocating. Package http1 has the connections. DESIGN.md
// follows one request from accept to answer.
//
// The fleet table ([fleet.Table]) holds the verdicts of all vehicles in memory. Answering takes no
// lock that another request could hold for longer than one lookup in this table. The access log, if
// there is one, is written in the background (accesslog.go).
//
// The scripts in testdata show the bytes of requests and of their answers. The tests run these
// scripts against a real listener.
//
// The checks run in this order, and the first that fails decides the answer: framing (including
// HTTP version and sizes), path, method, query syntax (including that of vid), readiness, token,
// operation, rate, vehicle. DESIGN.md gives the reasons for this order.
//
// A request with a sandbox token is answered by sandbox.go and not from the fleet table. The
// outcome of a call with a known token is counted for that token.
//
// This package must never do I/O while answering. It must never write a request, or any part of one
// except the vid, into a response, a log or a metric, because the access token is part of the
// request line. It must never let a client see whether a vehicle exists that is not in the grant of
// the client's token.
package query
