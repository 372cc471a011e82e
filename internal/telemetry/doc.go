// Package telemetry decodes what sources send (docs/telemetry.md) into [vehicle.Sample]s that they
// may write. It must know no connection, and never interpret what a reading means. A report repeats
// nothing of the input except names of signals (see isShown).
//
//	{"vid":"NHeN4UqVsohGS55I7LBdh","time":"2026-11-20T04:00:00.250Z","signals":{"Vehicle.Speed":12.4}}
//
// A signal is unknown if no rule uses it; it is ignored and counted. A value that is null, means
// "not available", has a wrong type or is impossible is not used.
// The report names both, and a strict source has the whole sample refused.
package telemetry
