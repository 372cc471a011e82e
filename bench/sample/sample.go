// Package sample measures what one sample costs on its way from a car to an answer.
package sample

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"example.org/carstate/bench/gobench"
	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/test/nodeprocess"
)

func Run(ctx context.Context, p *report.Part) error {
	b := run{Part: p, rounds: min(p.Rounds, 3), lasting: 5 * time.Second, cars: 10_000}
	if p.Quick {
		b.lasting, b.cars = 200*time.Millisecond, 2000
	}
	for _, step := range []struct {
		name string
		f    func(context.Context)
	}{
		{"the decoder", b.decoder},
		{"the disk", b.disk},
		{"HTTP, ten samples a car", func(ctx context.Context) { b.flood(ctx, 10) }},
		{"HTTP, one sample a car", func(ctx context.Context) { b.flood(ctx, 1) }},
		{"lone samples", func(ctx context.Context) {
			b.onNode(ctx, "lone", nil, func(n *node) { b.lone(ctx, n) })
		}},
		{"from a sample to its answer", func(ctx context.Context) {
			b.onNode(ctx, "answered", nil, func(n *node) { b.answered(ctx, n) })
		}},
		{"MQTT", b.mqtt},
	} {
		b.Logf("%s", step.name)
		if err := must.Caught(func() { step.f(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (b *run) decoder(ctx context.Context) {
	found := must.Get(gobench.Run(ctx, "internal/telemetry", "^BenchmarkDecode$", b.rounds))
	const name = "CPU to decode a sample of 165 bytes"
	b.Add("carstate", name, "ns", "a usual line is read by our own code", found["Decode/usual"]["ns/op"]...)
	b.Add("carstate, unusual line", name, "ns",
		"an escape in a name: the line is read with jsontext", found["Decode/checked"]["ns/op"]...)
}

func (b *run) disk(context.Context) {
	disk := must.Get(report.Fsyncs(b.Dir, 500))
	b.Add("the disk", "fsync of 4 KiB, p50", "ms", "with nothing else going on", report.Quantile(disk, 0.5))
	b.Add("the disk", "fsync of 4 KiB, p99", "ms", "with nothing else going on", report.Quantile(disk, 0.99))
}

func (b *run) flood(ctx context.Context, perCar int) {
	all := make(report.Rounds)
	for i := range b.rounds {
		b.onNode(ctx, fmt.Sprint("flood", perCar, "-", i), nil, func(n *node) {
			runFlood(ctx, n, floodBodies(b.cars, perCar), b.lasting, all)
		})
	}
	name, acknowledged, backlog, cpu := fmt.Sprintf("HTTP, %d cars, %d samples a car", b.cars, perCar), 100_000.0, 10.0, 3.0
	if perCar == 1 {
		name, acknowledged, backlog, cpu = fmt.Sprintf("HTTP, %d cars, 1 sample a car", b.cars), 0, 0, 4.5
	}
	b.AtLeast(acknowledged, name, "samples acknowledged", "1/s",
		"4 connections, up to 1,000 cars a body, the sender included on the same processors", all["rate"]...)
	b.AtMost(backlog, name, "backlog folded after the last sample", "s", "", all["drain"]...)
	b.AtMost(cpu, name, "server CPU a sample, until folded", "µs",
		"user and system time of the process, without later checkpoints", all["CPU"]...)
	b.Add(name, "checkpoints a sample", "B", "until the samples are folded; later ones are not included",
		all["checkpoints"]...)
}

func (b *run) lone(ctx context.Context, n *node) {
	for _, rate := range []float64{1000, 2000, 4000} {
		all := make(report.Rounds)
		for range b.rounds {
			runLone(ctx, n, rate, b.lasting, all)
		}
		name := fmt.Sprintf("lone samples, %.0f/s", rate)
		const remark = "each in a request of its own, from when it was due"
		b.Add(name, "acknowledged, p50", "ms", remark, all["p50"]...)
		b.AtMost(map[float64]float64{1000: 2.5}[rate], name, "acknowledged, p99", "ms", remark, all["p99"]...)
		b.Add(name, "samples a commit", "", "commits grow by themselves", all["commits"]...)
	}
}

func (b *run) answered(ctx context.Context, n *node) {
	hearOfAll(ctx, n)
	for _, rate := range []float64{1000, 10_000, 30_000} {
		all := make(report.Rounds)
		for range b.rounds {
			all.Add("sync", report.Quantile(must.Get(report.Fsyncs(b.Dir, 200)), 0.99))
			l := runAnswered(ctx, n, rate, 3*b.lasting)
			all.Add("p50", l.quantile(0.5))
			all.Add("p99", l.quantile(0.99))
		}
		name := fmt.Sprintf("published to answered, %.0f/s", rate)
		const remark = "from when a sample is due until a query's answer includes it; the other samples are sent ten cars " +
			"a request, and every car has reported before"
		b.AtMost(map[float64]float64{10_000: 3}[rate], name, "p50", "ms", remark, all["p50"]...)
		b.AtMost(map[float64]float64{10_000: 8, 30_000: 15}[rate], name, "p99", "ms", remark, all["p99"]...)
		b.Add(name, "the disk's fsync, p99", "ms", "4 KiB, just before each round", all["sync"]...)
	}
}

func (b *run) mqtt(ctx context.Context) {
	fleets := []int{1000, 10_000}
	if b.Quick {
		fleets = []int{20, 100}
	}
	for _, cars := range fleets {
		flags := []string{"--query-connections=64", "--ingest-connections=64", fmt.Sprint("--mqtt-connections=", cars*3/2)}
		var acks *latencies
		var rate, cpu, memory float64
		b.onNode(ctx, fmt.Sprint("mqtt", cars), flags, func(n *node) {
			sources := make([]source, 8) // a source may use little more than 1/8 of the connections
			for i := range sources {
				name := fmt.Sprint("fleet", i)
				sources[i] = source{name, must.Get(n.AddSource(ctx, name))}
			}
			acks, rate, cpu, memory = runMQTT(ctx, n, sources, cars, b.lasting)
		})
		name := fmt.Sprintf("carstate, MQTT QoS 1, %d connected cars", cars)
		b.Add(name, "messages acknowledged", "1/s",
			"each car sends its next sample when the one before is acknowledged; the cars included on the same processors",
			rate)
		b.Add(name, "acknowledged, p50", "ms", "with every car waiting for one", acks.quantile(0.5))
		b.Add(name, "acknowledged, p99", "ms", "with every car waiting for one", acks.quantile(0.99))
		b.AtMost(map[int]float64{1000: 25}[cars], name, "server CPU a message", "µs",
			"each message is on disk before it is acknowledged, and is then folded", cpu)
		b.Add(name, "server memory a connection", "kB", "resident, before anything was sent", memory/1000)
	}
}

type run struct {
	*report.Part
	rounds  int
	lasting time.Duration
	cars    int // of a flood
}

type node struct {
	*nodeprocess.Node
	key   string
	token string
}

func (b *run) onNode(ctx context.Context, name string, flags []string, f func(*node)) {
	p := must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: b.Binary, Dir: filepath.Join(b.Dir, name),
		Flags: flags}, time.Minute))
	defer p.Kill()
	key := must.Get(p.AddSource(ctx, "bench"))
	f(&node{p, key, must.Get(p.IssueToken(ctx, "bench")).AccessToken})
	must.Do(p.Stop())
}

func since(before, after nodeprocess.Metrics, name string) float64 {
	return after[name] - before[name]
}

// In milliseconds.
type latencies struct {
	mu   sync.Mutex
	took []float64
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, d.Seconds()*1e3)
}

func (l *latencies) quantile(part float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return report.Quantile(l.took, part)
}

func openLoop(ctx context.Context, perSecond float64, atOnce int, lasting time.Duration, f func(int, time.Time)) {
	ctx, cancel := context.WithTimeout(ctx, lasting+time.Minute)
	defer cancel()
	restart.OpenLoop(ctx, perSecond, atOnce, int(perSecond*lasting.Seconds()),
		func(_ context.Context, i int, due time.Time) { f(i, due) })
}
