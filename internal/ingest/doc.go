// Package ingest receives telemetry by [HTTP] and [MQTT] from sources, which are senders with a
// key. It decodes [vehicle.Sample]s, checks which vehicles the source may write for, passes them to
// a [Store], and acknowledges only what the store has on disk. DESIGN.md describes the flow, and
// docs/telemetry.md the format.
//
// The package must never interpret what a reading means, keep samples itself, or write input to a
// log. A response repeats nothing of its request except names of signals (see isShown). Storing a
// sample twice is harmless.
//
//	{"vid":"NHeN4UqVsohGS55I7LBdh","time":"2026-11-20T04:00:00.250Z","signals":{"Vehicle.Speed":12.4}}
//
// A signal is unknown if no rule uses it; it is ignored and counted. A value that is null, means
// "not available", has a wrong type or is impossible is not used, and the rest of the sample is.
// The response names both, and a strict source has the whole sample refused. A name twice in one
// object refuses it, too, because it is unclear which value was meant.
package ingest
