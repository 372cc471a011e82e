// Package ingest receives telemetry. It decodes the bytes that cars and gateways send into
// [vehicle.Sample]s, checks which vehicles the sender may write for, passes the samples to a
// [Store], and acknowledges only what the store has on disk. A sender that has a key is called a
// source. The package speaks two protocols: [HTTP] (NDJSON or JSON) and [MQTT] (3.1.1 and 5).
// DESIGN.md describes the flow.
//
// The package must never interpret what a reading means, keep samples itself, write input to a log,
// or acknowledge a sample before it is on disk. A response repeats nothing of its request except
// names of known signals and at most ten names of unknown signals, and of these only names spelled
// like those of VSS (see ignored). A
// sender that gets no acknowledgement sends again. Storing a sample twice is harmless.
//
// # Format of a sample
//
//	{"vid":"NHeN4UqVsohGS55I7LBdh","time":"2026-11-20T04:00:00.250Z","signals":{"Vehicle.Speed":12.4}}
//
// A sample is one JSON object. Members other than vid, time and signals are ignored, so that a
// sender may add its own. Signals have the names of the Vehicle Signal Specification (VSS). A
// signal is unknown if no rule of the service uses it. An unknown signal is ignored and counted,
// and the response names it. A value of a known signal is not used if it is null, means "not
// available", has a wrong type or is impossible; the response names it with the reason, and the rest
// of the sample is used. But if the source is strict, a sample with any of these is refused. A
// sample is also refused if a name appears twice in one object, at any level, because it is unclear
// which value was meant. A list of trouble codes has at most 255 entries. time is RFC 3339 or Unix
// milliseconds (a fraction of a millisecond is dropped). It may be at most 30 s ahead of this node's
// clock and at most 366 days behind: an older time comes from a clock that is wrong.
package ingest
