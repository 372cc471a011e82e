// Package access decides who may do what. A [Credential] is a token, which lets a
// developer ask, a source, which lets a car or a gateway send telemetry, or an
// operator, which lets a person run the service. Its [Kind] says which, the [Policy] of
// the kind what differs, and none stands in for another.
//
// Secrets exist in clear only in the hand they were given to. This package
// makes them ([NewSecret]), shows them once, and keeps their SHA-256. Records
// and hashes may be stored and passed around; a secret must never be.
package access
