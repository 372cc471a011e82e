package scale

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/codec"
)

// slice measures one part of a large fleet in one partition. The cars of this part report at their
// rate to one node for each role. Every node also serves the admin listener, because the bench
// reads its metrics there.
func (b *bench) slice(ctx context.Context) {
	cars := b.plan.cars
	rate := float64(cars) / reportEvery.Seconds()
	c := b.streams(copies, 1)
	began := time.Now()
	fill(ctx, c, cars)
	b.Add("slice", "states stored a second, 999 a batch", "1/s",
		"by one writer, one batch after the other, three copies", float64(cars)/time.Since(began).Seconds())
	b.onNodes(ctx, c, cars, rate, func(r *rig, f *follower) { b.sliced(ctx, r, f, cars, rate) })
}

// onNodes starts one node for each role, on streams that hold the cars' states, and a follower (a
// fleet table in this process). It calls do once the follower has all states.
func (b *bench) onNodes(ctx context.Context, c cluster.Config, cars int, rate float64,
	do func(*rig, *follower)) {
	r := b.newRig(c)
	defer r.kill()
	r.start(ctx, map[string]string{"ingest": "ingest,admin", "derive": "derive,admin", "query": "query,admin"})
	r.cars.Node, r.derive = r.nodes["ingest"], r.nodes["derive"]
	r.source(ctx)
	c.DataDir = filepath.Join(b.Dir, "follower")
	f := must.Get(follow(ctx, c))
	defer func() { must.Do(f.close()) }()
	select {
	case <-f.caughtUp:
	case <-ctx.Done():
		must.Do(ctx.Err())
	}
	// The first samples are folded only once the partition has an owner again.
	must.Do(r.cars.Drive(ctx, cars, rate, min(perBody, cars)))
	r.drained(ctx)
	do(r, f)
}

// sliced measures the slice in this order: at rest, with the cars' first reports, at the full rate,
// with more feeds, at lower rates, and with a backlog. At last it measures the sizes of records.
func (b *bench) sliced(ctx context.Context, r *rig, f *follower, cars int, rate float64) {
	b.Add("slice", "cars", "",
		fmt.Sprintf("one part of %d of %d M cars, in one partition", fleetParts, fleetCars/1_000_000), float64(cars))
	b.Add("slice", "samples a second", "1/s", "each car every ten seconds", rate)

	rest := r.during(ctx, func() { time.Sleep(b.plan.slow) })
	b.Add("slice, at rest", "CPU of the nodes, nothing sent", "% of a core", "three nodes, one partition",
		100*rest["CPU of nodes"]/rest["took"])
	b.Add("slice, at rest", "CPU of the servers, nothing sent", "% of a core", "all three",
		100*rest["CPU of servers"]/rest["took"])

	reports := int(rate * b.plan.first.Seconds())
	first, _ := b.load(ctx, r, f, cars, rate, reports)
	b.Add("slice, first reports", "states read a sample", "", "no state was cached: each was read from the servers",
		first["read"]/float64(reports))
	b.Add("slice, first reports", "CPU of derive a sample", "µs", "",
		micros(first["CPU of derive"], float64(reports)))
	b.Add("slice, first reports", "CPU of the three servers a sample", "µs", "",
		micros(first["CPU of servers"], float64(reports)))

	b.steady(ctx, r, f, cars, rate)
	b.moreFeeds(ctx, r, f, cars, rate)
	for _, less := range []struct {
		subject string
		part    float64
	}{{"slice, half the rate", 2}, {"slice, a tenth of the rate", 10}, {"slice, a hundredth of the rate", 100}} {
		rate := rate / less.part
		n := max(1, int(rate*b.plan.slow.Seconds()))
		s, l := b.load(ctx, r, f, cars, rate, n)
		b.Add(less.subject, "samples a second", "1/s", "", rate)
		b.Add(less.subject, "CPU of all a sample", "µs", "three nodes and three servers", micros(s.all(), float64(n)))
		idle := rest.all() * s["took"] / rest["took"]
		b.Add(less.subject, "CPU of all a fold, beyond that at rest", "µs",
			"its group commits, feeds and followers included", max(0, micros(s.all()-idle, s["folds"])))
		b.Add(less.subject, "samples a group commit", "", "", float64(n)/s["commits"])
		b.Add(less.subject, "states a fold", "", "", s["states"]/s["folds"])
		b.Add(less.subject, "lag, p50", "ms", "", report.Quantile(l.ms, 0.5))
		b.Add(less.subject, "lag, p99", "ms", "", report.Quantile(l.ms, 0.99))
	}
	b.backlog(ctx, r, cars)
	b.records(ctx, r)
}

// load lets the cars report at a rate, in samples per second, and waits until all samples are
// folded. It returns the amounts used in that time, and the ages of the states. Each sample results
// in one stored state, because the next sample of the same car is seconds later.
func (b *bench) load(ctx context.Context, r *rig, f *follower, cars int, rate float64, samples int) (counters, *lags) {
	l := newLags()
	f.measure(l)
	defer f.measure(nil)
	return r.during(ctx, func() {
		must.Do(r.cars.Drive(ctx, cars, rate, samples))
		l.left = float64(max(0, samples-f.seen()))
		r.drained(ctx)
	}), l
}

// steady measures the slice with its states cached.
func (b *bench) steady(ctx context.Context, r *rig, f *follower, cars int, rate float64) {
	n := int(rate * b.plan.steady.Seconds())
	s, l := b.load(ctx, r, f, cars, rate, n)
	const subject = "slice"
	samples := float64(n)
	b.AtMost(1000, subject, "lag, p99", "ms",
		"from when a sample was due until its state was in a fleet table; "+
			"nodes, servers and generator on the same processors",
		report.Quantile(l.ms, 0.99))
	b.Add(subject, "lag, p50", "ms", "", report.Quantile(l.ms, 0.5))
	quarter := b.plan.steady / 4
	b.AtMost(2, subject, "lag of the last quarter, over the first", "×", "medians",
		report.Quantile(l.between(3*quarter, 4*quarter), 0.5)/report.Quantile(l.between(0, quarter), 0.5))
	b.AtMost(1, subject, "lag, growth", "ms/s",
		fmt.Sprintf("Theil–Sen slope of the medians of %.0f seconds; a node that folds a thousandth less than arrives "+
			"falls behind by 1 ms/s", b.plan.steady.Seconds()),
		l.growth(b.plan.steady))
	b.AtMost(0.5, subject, "backlog when the last sample was acknowledged", "s",
		fmt.Sprintf("%.0f of %d samples, as the time in which that many arrive", l.left, n), l.left/rate)
	b.costs(subject, s, samples)
	b.Add(subject, "from clients to servers a sample", "B", "as NATS counts: without TCP's and IP's own",
		s["bytes from clients of servers"]/samples)
	b.Add(subject, "between servers a sample", "B", "as NATS counts: without TCP's and IP's own",
		s["bytes from servers of servers"]/samples)
	b.Add(subject, "from servers to clients a sample", "B", "to derive and to four feeds, as NATS counts",
		s["bytes to clients of servers"]/samples)
	info := b.stream(ctx, codec.Telemetry)
	b.Add(subject, "bytes a sample, as its stream counts", "B", "three signals, as they were committed",
		float64(info.State.Bytes)/float64(r.cars.Sent.Load()))
}

// costs adds, as figures, what a sample cost each process, and how busy the machine was. If few
// processors are idle, other programs on the machine lengthen the lag.
func (b *bench) costs(subject string, s counters, samples float64) {
	b.Add(subject, "CPU of ingest a sample", "µs",
		fmt.Sprintf("HTTP, %d cars a request; the feed of its console included", perBody),
		micros(s["CPU of ingest"], samples))
	b.Add(subject, "CPU of derive a sample", "µs", "all states cached; the feed of its console included",
		micros(s["CPU of derive"], samples))
	b.Add(subject, "CPU of the query node a state", "µs", "its feed alone, no queries; the console's part included",
		micros(s["CPU of query"], s["states"]))
	b.Add(subject, "CPU of the three servers a sample", "µs",
		"stored three times, and sent to derive and to four feeds", micros(s["CPU of servers"], samples))
	b.Add(subject, "CPU of the leader of STATES a sample", "µs", "with the other streams that this server leads",
		micros(s[fmt.Sprint("CPU of server ", b.servers.index(b.servers.Leader(codec.States)))], samples))
	b.Add(subject, "CPU of all a sample", "µs", "three nodes and three servers", micros(s.all(), samples))
	percent, others := s.inUse()
	b.Add(subject, "processors in use", "%",
		fmt.Sprintf("of the machine's %d, with cars, follower and other programs", runtime.NumCPU()), percent)
	b.Add(subject, "processors in use by others", "%",
		"of them: neither nodes nor servers nor cars; the kernel's own and other programs", others)
	b.Add(subject, "states stored a sample", "", "", s["states"]/samples)
	b.Add(subject, "samples a group commit", "", "", samples/s["commits"])
	b.Add(subject, "states a fold", "", "", s["states"]/s["folds"])
	b.Add(subject, "written by the three servers a sample", "B",
		"by the kernel's count, metadata of the file system not included", s["bytes written of servers"]/samples)
}

// spread measures the same cars at the same rate as slice, but over several partitions: as many as
// are recommended for a set of streams with two derive nodes. Samples that arrive together are then
// stored in more and smaller pieces.
func (b *bench) spread(ctx context.Context) {
	cars := b.plan.cars
	rate := float64(cars) / reportEvery.Seconds()
	c := b.streams(copies, b.plan.spread)
	fill(ctx, c, cars)
	b.onNodes(ctx, c, cars, rate, func(r *rig, f *follower) {
		b.load(ctx, r, f, cars, rate, int(rate*b.plan.first.Seconds()))
		n := int(rate * b.plan.slow.Seconds())
		s, l := b.load(ctx, r, f, cars, rate, n)
		const subject = "slice, more partitions"
		samples := float64(n)
		b.Add(subject, "partitions", "", "sixteen for each of two nodes that fold; the same cars, all states cached",
			float64(c.Partitions))
		b.Add(subject, "samples a second", "1/s", "over all partitions", rate)
		b.costs(subject, s, samples)
		b.Add(subject, "lag, p50", "ms", "", report.Quantile(l.ms, 0.5))
		b.Add(subject, "lag, p99", "ms", "", report.Quantile(l.ms, 0.99))
		b.Add(subject, "backlog when the last sample was acknowledged", "s",
			fmt.Sprintf("%.0f of %d samples", l.left, n), l.left/rate)
	})
}

// moreFeeds measures what each additional feed costs the servers.
func (b *bench) moreFeeds(ctx context.Context, r *rig, f *follower, cars int, rate float64) {
	n := int(rate * b.plan.slow.Seconds())
	without, _ := b.load(ctx, r, f, cars, rate, n)
	for range b.plan.feeds {
		nc := must.Get(nats.Connect(b.servers.URLs()))
		defer nc.Close()
		js := must.Get(nc.JetStream())
		must.Get(js.Subscribe(">", func(*nats.Msg) {}, nats.OrderedConsumer(), nats.BindStream(codec.States),
			nats.IdleHeartbeat(500*time.Millisecond), nats.DeliverNew()))
	}
	with, _ := b.load(ctx, r, f, cars, rate, n)
	b.Add("slice, more feeds", "feeds added", "", "", float64(b.plan.feeds))
	b.Add("slice, more feeds", "CPU of the servers a record sent", "µs",
		"of new states, beyond what the same load cost without these feeds",
		micros(max(0, with["CPU of servers"]-without["CPU of servers"]), float64(b.plan.feeds)*with["states"]))
}

// backlog measures how fast one partition is folded while it always has a backlog.
func (b *bench) backlog(ctx context.Context, r *rig, cars int) {
	began := time.Now()
	before := r.cars.Sent.Load()
	must.Do(r.cars.Drive(ctx, cars, 0, cars))
	r.drained(ctx)
	b.Add("slice, a backlog", "samples folded a second", "1/s",
		"every car once, sent as fast as it is acknowledged; nodes, servers and generator on the same processors",
		float64(r.cars.Sent.Load()-before)/time.Since(began).Seconds())
}

// records measures the bytes of a source, of a token, and of the audit records about each of them.
func (b *bench) records(ctx context.Context, r *rig) {
	a := must.Get(r.cars.Node.AdminClient())
	bytes := func() counters {
		c := make(counters)
		for _, name := range []string{codec.Sources, codec.Tokens, codec.Audit} {
			c[name] = float64(b.stream(ctx, name).State.Bytes)
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
