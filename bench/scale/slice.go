package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/nodeprocess"
)

func (b *bench) slice(ctx context.Context) {
	b.onNodes(ctx, 1, func(r *rig) {
		r.load(ctx, r.rate, int(r.rate*b.plan.first.Seconds()))
		const subject = "slice"
		b.Add(subject, "cars", "", fmt.Sprintf("one part of %d of %d M cars, in one partition", fleetParts,
			fleetCars/1_000_000), float64(b.plan.cars))
		s := b.measure(ctx, r, subject, b.plan.steady, 1000, 0.5)
		samples := r.rate * b.plan.steady.Seconds()
		for _, f := range []struct{ name, counter, remark string }{
			{"from clients to servers a sample", "bytes from clients", ""},
			{"between servers a sample", "bytes from servers", ""},
			{"from servers to clients a sample", "bytes to clients", "to derive and to four feeds, "},
		} {
			b.Add(subject, f.name, "B", f.remark+"as NATS counts: without TCP's and IP's own", s[f.counter]/samples)
		}
		b.Add(subject, "bytes a sample, as its stream counts", "B", "three signals, as they were committed",
			float64(b.servers.stream(ctx, codec.Telemetry).State.Bytes)/float64(r.cars.Sent.Load()))
		r.rate /= 2
		b.measure(ctx, r, "slice, half the rate", b.plan.slow, 0, 0)
		b.records(ctx, r)
	})
}

// As many partitions as are recommended for two nodes that fold: samples that arrive together are
// stored in more and smaller pieces.
func (b *bench) spread(ctx context.Context) {
	b.onNodes(ctx, b.plan.partitions, func(r *rig) {
		r.load(ctx, r.rate, int(r.rate*b.plan.first.Seconds()))
		const subject = "slice, more partitions"
		b.Add(subject, "partitions", "", "sixteen for each of two nodes that fold; the same cars, all states cached",
			float64(b.plan.partitions))
		b.measure(ctx, r, subject, b.plan.slow, 0, 0)
	})
}

// maxLag in ms and maxBacklog in s are aims; 0 is none.
func (b *bench) measure(ctx context.Context, r *rig, subject string, lasting time.Duration, maxLag, maxBacklog float64) counters {
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
		{"CPU of derive a sample", "CPU of derive", samples, "all states cached; the feed of its console included"},
		{"CPU of the query node a sample", "CPU of query", samples,
			"its feed alone, no queries; the console's part included"},
		{"CPU of the three servers a sample", "CPU of servers", samples,
			"stored three times, and sent to derive and to four feeds"},
		{"CPU of the leader of STATES a sample", fmt.Sprint("CPU of server ", b.servers.leader(ctx, codec.States)), samples,
			"with the other streams that this server leads"},
	} {
		b.Add(subject, f.name, "µs", f.remark, micros(s[f.counter], f.of))
	}
	b.Add(subject, "CPU of all a sample", "µs", "three nodes and three servers", micros(s.all(), samples))
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
		must.Get(a.AddSource(ctx, access.Request{Name: fmt.Sprintf("car%08d", i),
			Vehicles: access.VehicleSet(restart.VID(i))}))
		must.Get(a.IssueToken(ctx, access.Request{Developer: "Ada Lovelace", Operations: access.AllOperations,
			Vehicles: access.AllVehicles()}))
	}
	grown := bytes().since(before)
	b.Add("records", "bytes a source", "B", "that speaks for one car", grown[codec.Sources]/float64(n))
	b.Add("records", "bytes a token", "B", "for all cars", grown[codec.Tokens]/float64(n))
	b.Add("records", "bytes of audit an operation", "B", "audit records are never removed",
		grown[codec.Audit]/float64(2*n))
}

// subjects measures one stream with the states of many vehicles, after kill -9 of its server.
func (b *bench) subjects(ctx context.Context) {
	const subject = "subjects"
	n := b.plan.subjects
	c := b.streams(1, 1)
	c.DataDir = filepath.Join(b.Dir, "follower")
	empty := b.servers.work(ctx)
	began := time.Now()
	restart.Fill(ctx, must.Get(cluster.Open(ctx, c)), n)
	b.Add(subject, "cars", "", "in one stream of one copy", float64(n))
	b.Add(subject, "states stored a second, 999 a batch", "1/s", "by one writer, one batch after the other, one copy",
		float64(n)/time.Since(began).Seconds())
	at, info := b.servers.leader(ctx, codec.States), b.servers.stream(ctx, codec.States)
	b.Add(subject, "bytes a state, as its stream counts", "B",
		"cars that have driven for ten minutes, with nine signals; subject and the engine's own bytes included",
		float64(info.State.Bytes)/float64(info.State.Msgs))

	b.servers.all[at].Kill()
	began = time.Now()
	must.Do(b.servers.all[at].Start(), nodeprocess.Until(ctx, startLimit, func(ctx context.Context) error {
		return must.Caught(func() { b.servers.stream(ctx, codec.States) })
	}))
	b.Add(subject, "ready after kill -9", "s",
		"until the stream answers again, which may wait for the election of a leader of the cluster; page cache warm",
		time.Since(began).Seconds())
	before := b.servers.work(ctx)
	memory := fmt.Sprint("memory of server ", at)
	b.Add(subject, "memory of a server a vehicle, started", "B",
		"resident, beyond that of a server without streams; garbage of the recovery included",
		max(0, before[memory]-empty[memory])/float64(n))

	self := must.Get(nodeprocess.CPUOf(os.Getpid()))
	began = time.Now()
	f := follow(ctx, c)
	defer f.close()
	f.await(ctx)
	took, used := time.Since(f.first), must.Get(nodeprocess.CPUOf(os.Getpid()))-self
	feed := b.servers.work(ctx).since(before)
	got := float64(f.states.Load())
	if f.table.Len() != n {
		must.Fail("the feed brought %d of %d vehicles", f.table.Len(), n)
	}
	b.Add(subject, "until a feed's first record", "s", "the server looks up the last record of each vehicle first",
		f.first.Sub(began).Seconds())
	b.Add(subject, "records a feed brings a second", "1/s", "one feed, its server on the same processors",
		got/took.Seconds())
	b.Add(subject, "CPU of a node a record of its feed", "µs", "received, checked, unpacked, put into the fleet table",
		micros(used.Seconds(), got))
	b.Add(subject, "CPU of the server a record of a feed from the start", "µs", "", micros(feed["CPU of servers"], got))
	b.Add(subject, "bytes a record on a feed", "B", "as NATS counts: without TCP's and IP's own",
		feed["bytes to clients"]/got)
}
