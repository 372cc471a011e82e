// Package ops implements what an operator can do, for the admin API and the console. Each operation
// is in the audit before it is carried out, or is not carried out. Errors of [Operations] are, or
// wrap, a [Refusal].
//
// A secret is returned once, by the operation that created it. This package must never log a
// secret, put one into an error, or store one, except the admin key in its file.
package ops
