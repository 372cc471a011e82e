//go:build race

package testkit

// RaceDetector reports whether the test binary was built with the race detector. With the detector,
// code takes ten times as long, so tests with much work do less of their work. Therefore make test
// also runs these tests without the detector.
const RaceDetector = true
