//go:build !race

package testkit

const RaceDetector = false
