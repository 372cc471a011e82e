// Package scale measures what a part of a far larger fleet costs: carstate on three real NATS
// servers that sync every write, with as many messages a second as one of many partitions would
// have. All share one machine, so CPU times and bytes are valid, and latencies would differ.
package scale

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/test/natsprocess"
	"example.org/carstate/internal/test/nodeprocess"
)

const (
	fleetCars   = 100_000_000
	fleetParts  = 1024
	perBody     = 100
	reportEvery = 10 * time.Second
	startLimit  = 2 * time.Minute
)

type plan struct {
	cars       int           // of the slice
	alone      int           // without NATS, and while a node ends
	large      int           // of two nodes with every role
	first      time.Duration // the cars' first reports
	steady     time.Duration
	long       time.Duration // two nodes with every role
	partitions int           // of the second measurement
}

type bench struct {
	*report.Part
	plan    plan
	binary  string // nats-server
	servers *servers
}

func Run(ctx context.Context, p *report.Part) (err error) {
	defer must.Catch(&err)
	b := &bench{Part: p, plan: plan{cars: fleetCars / fleetParts, alone: 100_000, large: 300_000, first: reportEvery, steady: time.Minute,
		long: 20 * time.Minute, partitions: 32}}
	if p.Quick {
		b.plan = plan{cars: 20_000, alone: 20_000, large: 20_000, first: time.Second, steady: 2 * time.Second,
			long: 2 * time.Second, partitions: 4}
	}
	b.binary = must.Get(natsprocess.Build(ctx, "..", p.Dir))
	for _, step := range []struct {
		name string
		f    func(context.Context)
	}{
		{"one machine", b.alone},
		{"a slice of a large fleet", b.onServers(b.slice)},
		{"the slice over more partitions", b.onServers(b.spread)},
		{"two nodes with every role", b.onServers(b.twoNodes)},
		{"one of two nodes ends", b.onServers(b.ends)},
	} {
		began := time.Now()
		if err := must.Caught(func() { step.f(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		b.Logf("%s took %s", step.name, time.Since(began).Round(time.Second))
	}
	return nil
}

func (b *bench) onServers(f func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		b.servers = new(servers)
		defer b.servers.end()
		b.servers.start(ctx, b.binary)
		f(ctx)
	}
}

func micros(seconds, n float64) float64 { return 1e6 * seconds / n }

func (b *bench) alone(ctx context.Context) {
	n := must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: b.Binary, Dir: filepath.Join(b.Dir, "alone")},
		startLimit))
	defer n.Kill()
	cars := restart.Cars{Nodes: []*nodeprocess.Node{n}, PerBody: perBody, Key: must.Get(n.AddSource(ctx, "gateway"))}
	rate := float64(b.plan.alone) / reportEvery.Seconds()
	drive := func(lasting time.Duration) {
		must.Do(cars.Drive(ctx, b.plan.alone, rate, int(rate*lasting.Seconds())))
		want := float64(cars.Sent.Load())
		must.Get(n.AwaitMetrics(ctx, startLimit,
			func(m nodeprocess.Metrics) bool { return m["carstate_samples_folded_total"] >= want }))
	}
	drive(reportEvery)
	cpu, written := must.Get(n.CPU()), writtenBy(n.PID())
	began, before := time.Now(), cars.Sent.Load()
	drive(b.plan.steady)
	took, samples := time.Since(began).Seconds(), float64(cars.Sent.Load()-before)
	const subject = "one machine"
	used := (must.Get(n.CPU()) - cpu).Seconds()
	b.Add(subject, "cars", "", "on the store of one machine, one partition", float64(b.plan.alone))
	b.Add(subject, "samples a second", "1/s", fmt.Sprintf("HTTP, %d cars a request", perBody), samples/took)
	b.Add(subject, "CPU of all a sample", "µs", "all states in memory", micros(used, samples))
	b.Add(subject, "cores in use", "", "without queries", used/took)
	b.Add(subject, "written a sample", "B", "by the kernel's count, compaction included",
		float64(writtenBy(n.PID())-written)/samples)
}
