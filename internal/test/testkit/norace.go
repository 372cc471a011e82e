//go:build !race

package testkit

// RaceDetector reports whether the race detector is on.
const RaceDetector = false
