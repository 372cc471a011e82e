// Package faults puts faults of a throttle system into healthy drives, to measure the rules that
// must find such faults. The package is needed because no public recording has a real fault.
//
// From some time on, a [Fault] changes what one sensor reports, or what all sensors of one part
// report, as a fault of the wiring or the mechanics would: shifted, scaled, stuck, shorted, noisy.
// Nothing else in the drive changes, so a fault does not show how the driver, the engine or the
// car's own limp-home mode would react. The package must never judge a drive; it makes the drives
// that the rules judge.
package faults
