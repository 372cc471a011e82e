package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
)

// follower is a fleet table that follows the answers as a node does.
type follower struct {
	engine   *cluster.Engine
	table    *fleet.Table
	stop     context.CancelFunc
	done     chan struct{}
	caughtUp chan struct{}

	mu   sync.Mutex // guards lags
	lags *lags      // the measurement in progress; nil: none
}

func follow(ctx context.Context, c cluster.Config) *follower {
	f := &follower{engine: must.Get(cluster.Open(ctx, c)), table: fleet.New(), done: make(chan struct{}),
		caughtUp: make(chan struct{})}
	ctx, f.stop = context.WithCancel(ctx)
	go func() {
		defer close(f.done)
		_ = f.engine.FollowAnswers(ctx, f.put, func() { close(f.caughtUp) }) // it ends with the context
	}()
	return f
}

func (f *follower) await(ctx context.Context) {
	select {
	case <-f.caughtUp:
	case <-f.done:
		must.Fail("the feed has ended")
	case <-ctx.Done():
		must.Do(ctx.Err())
	}
}

func (f *follower) put(id vehicle.ID, a *store.Answer) {
	f.table.Put(id, fleet.Answer{Driving: a.Driving, Throttle: a.Throttle})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lags != nil {
		f.lags.add(time.Now(), max(a.Driving.Time, a.Throttle.Time))
	}
}

// measure collects no ages if l is nil.
func (f *follower) measure(l *lags) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lags = l
}

func (f *follower) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lags.ms)
}

func (f *follower) close() {
	f.stop()
	<-f.done
	must.Do(f.engine.Close())
}

// rig is one node for each role on the NATS servers, and a follower.
type rig struct {
	b       *bench
	nodes   map[string]*nodeprocess.Node // by role
	cars    restart.Cars                 // they report to the node with role ingest
	rate    float64                      // samples a second of all cars, one every reportEvery
	folded0 float64
	follow  *follower
}

func (b *bench) streams(replicas, partitions int) cluster.Config {
	return cluster.Config{Partitions: partitions, URLs: b.servers.urls, Replicas: replicas}
}

// onNodes calls do with one node for each role, on streams that hold the cars' states. Every node
// also serves the admin listener, from which the bench reads its metrics.
func (b *bench) onNodes(ctx context.Context, partitions int, do func(*rig)) {
	c := b.streams(copies, partitions)
	restart.Fill(ctx, must.Get(cluster.Open(ctx, c)), b.plan.cars, restart.AllSignals)
	r := &rig{b: b, nodes: make(map[string]*nodeprocess.Node), rate: float64(b.plan.cars) / reportEvery.Seconds()}
	r.cars.PerBody = perBody
	defer func() {
		for _, n := range r.nodes {
			n.Kill()
		}
	}()
	// A node is ready once it has the answers of all owners, so derive is first.
	for _, role := range []string{"derive", "ingest", "query"} {
		b.nodes++
		r.nodes[role] = must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{
			Binary: b.Binary, Dir: filepath.Join(b.Dir, fmt.Sprint("node", b.nodes)),
			Flags: []string{"--nats", c.URLs, "--replicas", fmt.Sprint(c.Replicas), "--partitions", fmt.Sprint(partitions),
				"--roles", role + ",admin"},
		}, startLimit))
	}
	r.cars.Node = r.nodes["ingest"]
	r.cars.Key = must.Get(r.cars.Node.AddSource(ctx, "gateway"))
	r.folded0 = must.Get(r.nodes["derive"].Metrics(ctx))["carstate_samples_folded_total"]
	c.DataDir = filepath.Join(b.Dir, "follower")
	r.follow = follow(ctx, c)
	defer r.follow.close()
	r.follow.await(ctx)
	// The first samples are folded only once the partition has an owner again.
	must.Do(r.cars.Drive(ctx, b.plan.cars, r.rate, min(perBody, b.plan.cars)))
	r.drained(ctx)
	do(r)
}

// drained waits, for startLimit at most, until all samples are folded.
func (r *rig) drained(ctx context.Context) {
	want := r.folded0 + float64(r.cars.Sent.Load())
	must.Get(r.nodes["derive"].AwaitMetrics(ctx, startLimit,
		func(m nodeprocess.Metrics) bool { return m["carstate_samples_folded_total"] >= want }))
}

// load lets the cars report at a rate, in samples per second, and waits until all is folded. It
// returns the amounts used in that time ("took" is in seconds), and the ages of the states. Each
// sample results in one state, because the next of the same car is seconds later.
func (r *rig) load(ctx context.Context, rate float64, samples int) (counters, *lags) {
	l := &lags{from: time.Now()}
	r.follow.measure(l)
	defer r.follow.measure(nil)
	before, began := r.reading(ctx), time.Now()
	must.Do(r.cars.Drive(ctx, r.b.plan.cars, rate, samples))
	l.left = float64(max(0, samples-r.follow.seen()))
	r.drained(ctx)
	took := time.Since(began).Seconds()
	spent := r.reading(ctx).since(before)
	spent["took"] = took
	return spent, l
}

func (r *rig) reading(ctx context.Context) counters {
	c := r.b.servers.work(ctx)
	for name, n := range r.nodes {
		cpu := must.Get(n.CPU()).Seconds()
		c["CPU of "+name] = cpu
		c["CPU of nodes"] += cpu
	}
	c["CPU of this process"] = must.Get(nodeprocess.CPUOf(os.Getpid())).Seconds()
	derive, ingest := must.Get(r.nodes["derive"].Metrics(ctx)), must.Get(r.cars.Node.Metrics(ctx))
	c["checkpoints"] = derive["carstate_checkpoint_bytes_total"]
	c["commits"] = ingest["carstate_commit_samples_count"]
	return c
}

// lags has how old states were when they were put into the fleet table, from when the sample was
// due. One goroutine adds the ages; others read them only after it has ended.
type lags struct {
	from time.Time
	ms   []float64
	left float64 // number of states not in the table when the last sample was acknowledged
}

func (l *lags) add(now time.Time, t signal.UnixMilli) {
	if int64(t) < l.from.UnixMilli() {
		return // sent before the measurement
	}
	l.ms = append(l.ms, float64(now.UnixMicro())/1e3-float64(t))
}
