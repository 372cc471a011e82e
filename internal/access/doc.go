// Package access decides which caller may do what. A [Credential] is a token, with which a
// developer sends queries; a source, with which a car or a gateway sends telemetry; or an operator,
// who administers the service. The [Policy] of its [Kind] has the differences. A credential of one
// kind is never accepted in place of another kind.
//
// This package generates secrets ([NewSecret]), returns each once, and keeps only its SHA-256.
// Records and hashes may be stored and sent to other nodes; a secret must not.
package access
