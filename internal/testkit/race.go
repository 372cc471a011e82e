//go:build race

package testkit

// RaceDetector reports whether the test binary was built with the race detector. With it, code takes
// ten times as long, so tests with much work do less of it, and make test runs them again without.
const RaceDetector = true
