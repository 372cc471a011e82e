package scale

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"example.org/carstate/bench/report"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/nodeprocess"
)

func (b *bench) slice(ctx context.Context) {
	b.onNodes(ctx, b.plan.cars, 1, eachRole, func(r *rig) {
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
	})
}

// With more partitions, samples that arrive together are stored in more and smaller pieces.
func (b *bench) spread(ctx context.Context) {
	const subject = "slice, more partitions"
	b.onNodes(ctx, b.plan.cars, b.plan.partitions, eachRole, func(r *rig) {
		b.Add(subject, "cars", "", fmt.Sprintf("over %d partitions", b.plan.partitions), float64(b.plan.cars))
		b.measure(ctx, r, subject, b.plan.steady/10, 0, 0, 0)
	})
}

func (b *bench) twoNodes(ctx context.Context) {
	const subject = "two nodes with every role"
	b.onNodes(ctx, b.plan.large, 16, []string{"first", "second"}, func(r *rig) {
		b.Add(subject, "cars", "", "over 16 partitions", float64(b.plan.large))
		b.measure(ctx, r, subject, b.plan.long, 1000, 0, 45)
	})
}

// The cars report to one of two nodes while the other ends.
func (b *bench) ends(ctx context.Context) {
	b.onNodes(ctx, b.plan.alone, 16, []string{"first", "second"}, func(r *rig) {
		r.cars.Nodes = r.cars.Nodes[:1]
		end := func(name string, most float64, end func(*nodeprocess.Node)) {
			second := r.nodes["second"]
			delete(r.nodes, "second")
			ending := time.AfterFunc(b.plan.first/5, func() { end(second) })
			_, l := r.load(ctx, r.rate, int(3*r.rate*b.plan.first.Seconds()))
			ending.Stop()
			b.AtMost(most, "one of two nodes ends", name, "s", fmt.Sprintf("%.0f samples a second", r.rate), l.most/1000)
			r.start(ctx, "second")
		}
		end("oldest answer while a node ends in order", 1, func(n *nodeprocess.Node) { _ = n.Stop() })
		end("oldest answer after kill -9 of a node", 12, (*nodeprocess.Node).Kill)
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
	s["CPU of the busiest"] = max(s["CPU of server 0"], s["CPU of server 1"], s["CPU of server 2"])
	for _, f := range []struct{ name, counter, remark string }{
		{"CPU of ingest a sample", "CPU of ingest", fmt.Sprintf("HTTP, %d cars a request; the feed of its console included", perBody)},
		{"CPU of derive a sample", "CPU of derive", "all states in memory, checkpoints included; its console's answers, too"},
		{"CPU of both nodes a sample", "CPU of nodes", "half of the cars report to each"},
		{"CPU of the query node a sample", "CPU of query", "its answers alone, no queries; its console's, too"},
		{"CPU of the three servers a sample", "CPU of servers", "stored three times, sent to derive, and the answers to four nodes"},
		{"CPU of the busiest server a sample", "CPU of the busiest", "it leads the telemetry"},
	} {
		if s[f.counter] > 0 && (f.counter == "CPU of nodes") == (len(r.nodes) == 2) {
			b.Add(subject, f.name, "µs", f.remark, micros(s[f.counter], samples))
		}
	}
	b.AtMost(maxCPU, subject, "CPU of all a sample", "µs", "three nodes and three servers", micros(s.all(), samples))
	b.Add(subject, "processors in use", "%",
		fmt.Sprintf("of the machine's %d, by nodes, servers, cars and follower", runtime.NumCPU()),
		100*(s.all()+s["CPU of this process"])/s["took"]/float64(runtime.NumCPU()))
	b.Add(subject, "checkpoints a sample", "B", "before they are compressed", s[saved]/samples)
	b.Add(subject, "samples a group commit", "", "", samples/s[commits])
	b.Add(subject, "written by the three servers a sample", "B",
		"by the kernel's count, metadata of the file system not included", s["bytes written"]/samples)
	return s
}
