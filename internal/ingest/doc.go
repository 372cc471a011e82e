// Package ingest is the front door for telemetry: it turns bytes from cars and
// gateways into [vehicle.Sample]s. It checks who may speak for which vehicle,
// hands the samples to a [Store], and acknowledges only what the store has on
// disk. Two protocols lead in: [HTTP] (NDJSON or JSON) and [MQTT] (3.1.1 and 5).
//
// It never judges what a reading means, never keeps a sample itself, never
// repeats input in a log, and never acknowledges early. An answer repeats of its
// request the names of unknown signals and nothing else: ten at most, and only
// names as VSS spells them (see ignored). A sender
// that gets no acknowledgement sends again, and a sample stored twice is
// harmless.
//
// # What a sample looks like
//
//	{"vid":"NHeN4UqVsohGS55I7LBdh","time":"2026-11-20T04:00:00.250Z","signals":{"Vehicle.Speed":12.4}}
//
// One JSON object. Members other than vid, time and signals are ignored, so
// that a sender may carry its own. Signals have VSS names; those that no rule
// uses are ignored, counted and named in the answer; from a strict source they
// refuse the sample. A name that appears twice in one object is
// refused wherever it is, because nobody can say which value was meant. null is
// not a reading and is refused. A list of trouble codes has at most 255. Time is
// RFC 3339 or Unix milliseconds (a fraction of a millisecond is dropped), at
// most 30 s ahead of our clock and not before the year 2000, which is what Unix
// seconds sent by mistake look like.
// A sample is refused whole: one impossible value makes the others doubtful.
//
// # Memory
//
// What senders make us hold is counted in bytes, and [Config.MaxBytes] bounds it
// for each protocol. Over it, HTTP answers 503, and MQTT stops reading from
// those who send until there is room. Each source has a share, so that none keeps
// others out (see budget). Besides, an open MQTT connection costs
// about 50 KiB, and with topic aliases up to 20 KiB more.
package ingest
