// Package vehicle holds what the service knows of a car, and the rules that conclude how it drives
// and whether its throttle is healthy.
//
// The package has no clock and no I/O, and must never know about bytes, topics, headers or storage.
package vehicle
