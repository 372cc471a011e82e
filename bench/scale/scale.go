// Package scale measures what a fleet far larger than this machine costs, one part of the fleet at
// a time. It runs carstate on three real NATS servers that sync every write, with as many messages
// a second as one of many partitions would have.
//
// All processes run on the processors of one machine. So only CPU times and bytes are valid
// results; latencies on three separate machines would differ. From these figures, the page on scale
// (package report) calculates what whole fleets need. It finds the figures by their subjects and
// names, and says which of them are missing.
package scale

import (
	"context"
	"fmt"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/cluster/clustertest"
)

// Run measures the part scale: the costs of one part of a very large fleet.
func Run(ctx context.Context, p *report.Part) error {
	b := &bench{Part: p, plan: planFor(p.Quick)}
	defer clustertest.End()
	b.limits()
	if err := must.Caught(func() { b.alone(ctx) }); err != nil {
		return fmt.Errorf("one machine: %w", err)
	}
	steps := []step{
		{"a slice of a large fleet", b.slice},
		{"the slice over more partitions", b.spread},
		{"many vehicles in one stream", b.subjects},
	}
	if p.Quick {
		b.on(ctx, steps...) // one cluster for all, since servers take seconds to elect a leader
		return nil
	}
	for _, s := range steps {
		b.on(ctx, s)
	}
	return nil
}

// step is a measurement that begins on servers that have no streams.
type step struct {
	name string
	f    func(context.Context)
}

// on starts servers and runs steps on them, one after the other. The servers are new, so no step of
// an earlier call has used their memory.
func (b *bench) on(ctx context.Context, steps ...step) {
	t := newOutside(b.Logf)
	defer t.cleanUp()
	b.servers = startServers(t)
	for _, s := range steps {
		b.Logf("%s", s.name)
		began := time.Now()
		if err := must.Caught(func() { s.f(ctx) }); err != nil {
			must.Fail("%s: %w", s.name, err)
		}
		b.servers.Wipe()
		b.Logf("%s took %s", s.name, time.Since(began).Round(time.Second))
	}
}

// limits adds, as figures, the limits of the code and of the servers that matter to a fleet.
func (b *bench) limits() {
	const gib = 1 << 30
	for _, f := range []struct {
		name  string
		value float64
		unit  string
	}{
		{"TELEMETRY keeps", float64(store.DefaultTelemetryBytes) / gib, "GiB"},
		{"STATES keeps", float64(cluster.DefaultStatesBytes) / gib, "GiB"},
		{"TOKENS, SOURCES and AUDIT keep, each", recordGiB, "GiB"},
		{"telemetry is kept after it was folded", store.DefaultRetention.Hours(), "h"},
		{"MQTT connections of a node", mqttConnections, ""},
		{"cached states, all partitions", cachedStates, ""},
		{"nodes whose batches one stream takes at once", serverBatches / nodeBatches, ""},
		{"a feed is set up within", feedSetup.Seconds(), "s"},
		{"partitions", mostPartitions, ""},
	} {
		b.Add("limits", f.name, f.unit, "of the code", f.value)
	}
}

// Limits that other packages do not export.
const (
	recordGiB       = 1                // TOKENS, SOURCES, AUDIT each (internal/store/cluster)
	mqttConnections = 20_000           // a node (internal/ingest)
	cachedStates    = 100_000          // over all partitions (internal/node)
	nodeBatches     = 8                // atomic batches of a node in progress (internal/store/cluster)
	serverBatches   = 50               // that a server accepts for one stream (nats-server)
	feedSetup       = 30 * time.Second // for a feed from the start (internal/store/cluster)
	mostPartitions  = 4096             // (cmd/carstate)
)
