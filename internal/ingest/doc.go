// Package ingest receives telemetry by [HTTP] and [MQTT] from sources, which are senders with a
// key. It passes the samples to a [Store], and acknowledges only what the store has on disk.
// DESIGN.md describes the flow.
//
// The package must never keep samples itself, or write input to a log. A sender may repeat samples:
// storing one twice is harmless.
package ingest
