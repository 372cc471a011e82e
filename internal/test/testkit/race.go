//go:build race

package testkit

// RaceDetector reports whether the race detector is on. Code then takes ten times as long, so some
// tests do less, and make test runs them without it, too.
const RaceDetector = true
