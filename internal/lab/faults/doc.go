// Package faults puts faults of a throttle system into healthy drives, so that
// the rules that must find them can be measured: no public recording holds a
// real one.
//
// A [Fault] changes what one sensor, or one part that several sensors see,
// reports from some time on, as the wiring or the mechanics would: shifted,
// scaled, stuck, shorted, noisy. Nothing else in the drive changes, so a fault
// says nothing of how driver, engine or the car's own limp-home mode would
// answer. The package must never judge: it makes drives, the rules judge them.
package faults
