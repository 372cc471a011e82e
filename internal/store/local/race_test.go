//go:build race

package local

// raceDetector says whether the race detector watches this test.
const raceDetector = true
