// Package access decides who may do what. A [Token] is who may read: a
// developer, the operations granted, the vehicles, an expiry, a rate. A
// [Source] is who may write: a car, or a gateway that speaks for many. The two
// never stand in for each other.
//
// Secrets exist in clear only in the hand they were given to. This package
// makes them ([NewSecret]), shows them once, and keeps their SHA-256. Records
// and hashes may be stored and passed around; a secret must never be.
package access
