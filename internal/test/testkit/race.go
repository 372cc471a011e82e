//go:build race

package testkit

// Under the race detector, code takes ten times as long, so some tests do less, and make test runs
// them without it, too.
const RaceDetector = true
