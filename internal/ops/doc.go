// Package ops is what an operator can do: issue and revoke tokens, add and remove
// sources and operators, forget vehicles, back up and restore. The admin API and the
// console both call it. It also keeps the file of the admin key.
//
// The audit comes first: an event is stored before each operation, and an operation
// that cannot be audited is not done. A secret passes through once, in the result that
// shows it to the operator; this package must never log one, store one or put one into
// an error.
package ops
