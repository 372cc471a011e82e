// Package sample measures what one sample costs on its way from a car to an answer: how many
// samples the service accepts, how soon each is acknowledged, how soon it is part of an answer, and
// which step takes how much of the time.
//
// The measured service is the released binary with a data directory on a real disk. Every write is
// fsynced before it is acknowledged. The senders run on the same processors.
package sample

import (
	"context"
	"fmt"
	"time"

	"example.org/carstate/bench/gobench"
	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
)

// Run measures the part sample: the cost of one sample on its way from a car to an answer.
func Run(ctx context.Context, p *report.Part) error {
	// More than three rounds would cost much time and add little.
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

const micro = float64(time.Microsecond)

// decoder adds the figures of the benchmark in the decoder's package.
func (b *run) decoder(ctx context.Context) {
	found := must.Get(gobench.Run(ctx, "internal/ingest", "^BenchmarkDecode$", b.rounds))
	const name = "CPU to decode a sample of 165 bytes"
	b.Add("carstate", name, "ns", "a usual line is read by our own code", found["Decode/usual"]["ns/op"]...)
	b.Add("carstate, unusual line", name, "ns",
		"an escape in a name: the line is first checked with jsontext", found["Decode/checked"]["ns/op"]...)
}

// disk measures the disk without any other load.
func (b *run) disk(context.Context) {
	disk := must.Get(report.Fsyncs(b.Dir, 500))
	b.Add("the disk", "fsync of 4 KiB, p50", "ms", "with nothing else going on", report.Quantile(disk, 0.5))
	b.Add("the disk", "fsync of 4 KiB, p99", "ms", "with nothing else going on", report.Quantile(disk, 0.99))
}

// connections is the number of connections over which a flood is sent.
const connections = 4

func (b *run) flood(ctx context.Context, perCar int) {
	var rates, drains, cpus, states []float64
	for i := range b.rounds {
		b.onNode(ctx, fmt.Sprint("flood", perCar, "-", i), nil, func(n *node) {
			f := runFlood(ctx, n, floodBodies(b.cars, perCar), connections, b.lasting)
			rates, drains = append(rates, f.rate), append(drains, f.drain.Seconds())
			cpus, states = append(cpus, float64(f.cpu)/micro), append(states, f.states)
		})
	}
	name := fmt.Sprintf("HTTP, %d cars, ", b.cars)
	name += map[bool]string{true: "1 sample a car", false: fmt.Sprintf("%d samples a car", perCar)}[perCar == 1]
	remark := fmt.Sprintf("%d connections, up to 1,000 cars a body, the sender included on the same processors",
		connections)
	acknowledged, backlog := 0.0, 0.0 // the aims; 0: none
	if perCar > 1 {
		acknowledged, backlog = 100_000, 10
	}
	b.AtLeast(acknowledged, name, "samples acknowledged", "1/s", remark, rates...)
	b.AtMost(backlog, name, "backlog folded after the last sample", "s", "", drains...)
	b.AtMost(map[int]float64{10: 3, 1: 4.5}[perCar], name, "server CPU a sample, until folded", "µs",
		"user and system time of the process, without later checkpoints", cpus...)
	b.Add(name, "states stored a sample", "", "until the samples are folded; later checkpoints are not included",
		states...)
}

func (b *run) lone(ctx context.Context, n *node) {
	for _, rate := range []float64{1000, 2000, 4000} {
		var p50s, p99s, commits []float64
		for range b.rounds {
			l := runLone(ctx, n, rate, b.lasting)
			p50s, p99s, commits = append(p50s, l.acks.quantile(0.5)), append(p99s, l.acks.quantile(0.99)),
				append(commits, l.commit)
		}
		name := fmt.Sprintf("lone samples, %.0f/s", rate)
		b.Add(name, "acknowledged, p50", "ms", "each in a request of its own, from when it was due", p50s...)
		b.AtMost(map[float64]float64{1000: 2.5}[rate], name, "acknowledged, p99", "ms",
			"each in a request of its own, from when it was due", p99s...)
		b.Add(name, "samples a commit", "", "commits grow by themselves", commits...)
	}
}

func (b *run) answered(ctx context.Context, n *node) {
	hearOfAll(ctx, n)
	for _, rate := range []float64{1000, 10_000, 30_000} {
		var p50s, p99s, syncs []float64
		for range b.rounds {
			sync := must.Get(report.Fsyncs(b.Dir, 200))
			l := runAnswered(ctx, n, rate, 3*b.lasting)
			p50s, p99s, syncs = append(p50s, l.quantile(0.5)), append(p99s, l.quantile(0.99)),
				append(syncs, report.Quantile(sync, 0.99))
		}
		name := fmt.Sprintf("published to answered, %.0f/s", rate)
		const remark = "from when a sample is due until a query's answer includes it; the other samples are sent ten cars " +
			"a request, and every car has reported before"
		b.AtMost(map[float64]float64{10_000: 3}[rate], name, "p50", "ms", remark, p50s...)
		b.AtMost(map[float64]float64{10_000: 8, 30_000: 15}[rate], name, "p99", "ms", remark, p99s...)
		b.Add(name, "the disk's fsync, p99", "ms", "4 KiB, just before each round", syncs...)
	}
}

func (b *run) mqtt(ctx context.Context) {
	fleets := []int{1000, 10_000}
	if b.Quick {
		fleets = []int{20, 100}
	}
	for _, cars := range fleets {
		// If the limit of open descriptors is low, nearly all descriptors are for the cars.
		flags := []string{"--query-connections=64", "--ingest-connections=64", fmt.Sprint("--mqtt-connections=", cars*3/2)}
		var c connected
		b.onNode(ctx, fmt.Sprint("mqtt", cars), flags, func(n *node) {
			sources := make([]source, 8) // a source may use little more than 1/8 of the connections
			for i := range sources {
				name := fmt.Sprint("fleet", i)
				sources[i] = source{name, must.Get(n.AddSource(ctx, name))}
			}
			c = runMQTT(ctx, n, sources, cars, b.lasting)
		})
		name := fmt.Sprintf("carstate, MQTT QoS 1, %d connected cars", cars)
		b.Add(name, "messages acknowledged", "1/s",
			"each car sends its next sample when the one before is acknowledged; the cars included on the same processors",
			c.rate)
		b.Add(name, "acknowledged, p50", "ms", "with every car waiting for one", c.acks.quantile(0.5))
		b.Add(name, "acknowledged, p99", "ms", "with every car waiting for one", c.acks.quantile(0.99))
		b.AtMost(map[int]float64{1000: 25}[cars], name, "server CPU a message", "µs",
			"each message is on disk before it is acknowledged, and is then folded", float64(c.cpu)/micro)
		b.Add(name, "server memory a connection", "kB", "resident, before anything was sent", c.memory/1000)
	}
}
