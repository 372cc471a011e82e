// Package access decides which caller may do what. A [Credential] is one of three things: a token,
// with which a developer sends queries; a source, with which a car or a gateway sends telemetry; or
// an operator, with which a person administers the service. Its [Kind] says which of the three it
// is, and the [Policy] of the kind holds the differences between the kinds. A credential of one
// kind is never accepted in place of another kind.
//
// A secret is known in clear only to its holder. This package generates secrets ([NewSecret]),
// returns each secret once, and keeps only its SHA-256. Records and hashes may be stored and sent
// to other nodes; a secret must not.
package access
