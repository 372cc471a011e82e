// Package ops implements what an operator can do: issue and revoke tokens, add and remove sources
// and operators, forget vehicles, back up and restore. The admin API and the console both call it.
//
// An event is stored in the audit before each operation, and an operation that cannot be audited is
// not carried out. A secret is returned once, in the result of the operation that created it. This
// package must never log a secret, put one into an error, or store one, except the admin key in its
// file.
package ops
