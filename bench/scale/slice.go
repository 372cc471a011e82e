package scale

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
)

func (b *bench) slice(ctx context.Context) {
	b.onNodes(ctx, 1, func(r *rig) {
		r.load(ctx, r.rate, int(r.rate*b.plan.first.Seconds()))
		const subject = "slice"
		b.Add(subject, "cars", "", fmt.Sprintf("one part of %d of %d M cars, in one partition", fleetParts,
			fleetCars/1_000_000), float64(b.plan.cars))
		s := b.measure(ctx, r, subject, b.plan.steady, 1000, 0.5, 70)
		samples := r.rate * b.plan.steady.Seconds()
		for _, f := range []struct{ name, counter, remark string }{
			{"from clients to servers a sample", "bytes from clients", ""},
			{"between servers a sample", "bytes from servers", ""},
			{"from servers to clients a sample", "bytes to clients", "telemetry to derive, answers to four nodes, "},
		} {
			b.Add(subject, f.name, "B", f.remark+"as NATS counts: without TCP's and IP's own", s[f.counter]/samples)
		}
		b.Add(subject, "bytes a sample, as its stream counts", "B", "three signals, as they were committed",
			float64(b.servers.stream(ctx, codec.Telemetry).State.Bytes)/float64(r.cars.Sent.Load()))
		b.records(ctx, r)
	})
}

// With more partitions, samples that arrive together are stored in more and smaller pieces.
func (b *bench) spread(ctx context.Context, subject string, cars, partitions int, lasting time.Duration, maxCPU float64) {
	b.plan.cars = cars
	b.onNodes(ctx, partitions, func(r *rig) {
		r.load(ctx, r.rate, int(r.rate*b.plan.first.Seconds()))
		b.Add(subject, "cars", "", fmt.Sprintf("over %d partitions", partitions), float64(cars))
		b.measure(ctx, r, subject, lasting, 0, 0, maxCPU)
	})
}

// maxLag in ms, maxBacklog in s and maxCPU in µs a sample are aims; 0 is none.
func (b *bench) measure(ctx context.Context, r *rig, subject string, lasting time.Duration, maxLag, maxBacklog, maxCPU float64) counters {
	n := max(1, int(r.rate*lasting.Seconds()))
	s, l := r.load(ctx, r.rate, n)
	samples := float64(n)
	b.Add(subject, "samples a second", "1/s", "over all partitions", r.rate)
	b.AtMost(maxLag, subject, "lag, p99", "ms", "from when a sample was due until its state was in a fleet table; "+
		"nodes, servers and generator on the same processors", report.Quantile(l.ms, 0.99))
	b.Add(subject, "lag, p50", "ms", "", report.Quantile(l.ms, 0.5))
	b.AtMost(maxBacklog, subject, "backlog when the last sample was acknowledged", "s",
		fmt.Sprintf("%.0f of %d samples, as the time in which that many arrive", l.left, n), l.left/r.rate)
	for _, f := range []struct {
		name, counter string
		of            float64
		remark        string
	}{
		{"CPU of ingest a sample", "CPU of ingest", samples,
			fmt.Sprintf("HTTP, %d cars a request; the feed of its console included", perBody)},
		{"CPU of derive a sample", "CPU of derive", samples, "all states in memory, checkpoints included; its console's answers, too"},
		{"CPU of the query node a sample", "CPU of query", samples, "its answers alone, no queries; its console's, too"},
		{"CPU of the three servers a sample", "CPU of servers", samples,
			"stored three times, sent to derive, and the answers to four nodes"},
		{"CPU of the leader of STATES a sample", fmt.Sprint("CPU of server ", b.servers.leader(ctx, codec.States)), samples,
			"with the other streams that this server leads"},
	} {
		b.Add(subject, f.name, "µs", f.remark, micros(s[f.counter], f.of))
	}
	b.AtMost(maxCPU, subject, "CPU of all a sample", "µs", "three nodes and three servers", micros(s.all(), samples))
	b.Add(subject, "processors in use", "%",
		fmt.Sprintf("of the machine's %d, by nodes, servers, cars and follower", runtime.NumCPU()),
		100*(s.all()+s["CPU of this process"])/s["took"]/float64(runtime.NumCPU()))
	b.Add(subject, "checkpoints a sample", "B", "before they are compressed", s["checkpoints"]/samples)
	b.Add(subject, "samples a group commit", "", "", samples/s["commits"])
	b.Add(subject, "written by the three servers a sample", "B",
		"by the kernel's count, metadata of the file system not included", s["bytes written"]/samples)
	return s
}

func (b *bench) records(ctx context.Context, r *rig) {
	a := must.Get(r.cars.Node.AdminClient())
	bytes := func() counters {
		c := make(counters)
		for _, name := range []string{codec.Sources, codec.Tokens, codec.Audit} {
			c[name] = float64(b.servers.stream(ctx, name).State.Bytes)
		}
		return c
	}
	before := bytes()
	n := b.plan.operations
	for i := range n {
		must.Get(a.AddSource(ctx, access.Credential{Name: fmt.Sprintf("car%08d", i),
			Vehicles: access.VehicleSet(restart.VID(i))}))
		must.Get(a.IssueToken(ctx, access.Credential{Developer: "Ada Lovelace", Operations: access.AllOperations,
			Vehicles: access.AllVehicles()}))
	}
	grown := bytes().since(before)
	b.Add("records", "bytes a source", "B", "that speaks for one car", grown[codec.Sources]/float64(n))
	b.Add("records", "bytes a token", "B", "for all cars", grown[codec.Tokens]/float64(n))
	b.Add("records", "bytes of audit an operation", "B", "audit records are never removed",
		grown[codec.Audit]/float64(2*n))
}
