// Package ops implements what an operator can do: issue and revoke tokens, add and remove sources
// and operators, forget vehicles, back up and restore. The admin API and the console both call it.
// It also manages the file of the admin key.
//
// An event is stored in the audit before each operation, and an operation that cannot be audited is
// not carried out. A secret is returned once, in the result of the operation that created it. This
// package must never log a secret, store one, or put one into an error.
package ops
