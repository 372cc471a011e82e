// Package faults puts faults into the throttle systems of healthy drives, because no public
// recording has a real one. It does not show how the driver, the engine or a limp-home mode would
// react. It must never judge a drive.
package faults
