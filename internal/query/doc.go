// Package query answers the two operations of the service over HTTP/1.1: how a
// vehicle drives, and whether its throttle system is healthy. Beside them it
// serves the public documentation, which is embedded and made once, at the start
// (docs.go and the directory docs).
//
// It has two halves. The answerer (answer.go and the files beside it) knows no
// sockets: it gets the method, the request target as sent, and the header block,
// and it produces status, headers and body without allocating. [Server] (server.go)
// has a goroutine a connection (converse.go), which reads heads (reading.go), has
// them answered, and writes (writing.go); it knows GET and HEAD without bodies and
// nothing else of HTTP. Requests are read strictly: where a request could be
// understood in two ways it is refused and the connection closed.
//
// Who answers takes no lock that another request could hold, but for one that lasts
// as long as a look into the table. The access log, if there is one, is written in
// the background (accesslog.go).
//
// The contract on the wire is written as scripts in testdata, which a person
// can read and which the tests run against a real listener.
//
// The checks come in this order, and the first that fails decides the answer:
// framing (HTTP version and sizes included), path, method, query syntax (that
// of vid included), overload and readiness, token, operation, rate, vehicle.
// Readiness comes after everything that can be judged from the request alone,
// so that a wrong request is told so even while the service starts, and before
// the token, because a node that is out of touch cannot judge tokens.
//
// A token that does not count is refused with 401, or with 429 once its caller's
// address had too many refused (refusals.go, client.go). A sandbox token is
// answered by sandbox.go in place of the fleet table. What becomes of a call whose
// token is known is counted for that token.
//
// This package must never do I/O while answering, never write a request, or
// any part of it but the vid, into a response, a log or a metric (the access
// token travels in the request line), and never let a caller see whether a
// vehicle it was not granted exists.
package query
