// Package faults puts faults of a throttle system into healthy drives, to measure the rules
// that must find them: no public recording holds a real fault.
//
// A [Fault] changes from some time on what one sensor reports, or one part that several
// sensors measure, as a fault of the wiring or the mechanics would: shifted, scaled, stuck,
// shorted, noisy. Nothing else in the drive changes, so a fault does not show how the
// driver, the engine or the car's own limp-home mode would answer. The package must never
// judge: it makes drives, and the rules judge them.
package faults
