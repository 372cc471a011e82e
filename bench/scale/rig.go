package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
)

// follower is a fleet table in this process, fed as in a node.
type follower struct {
	engine   *cluster.Engine
	table    *fleet.Table
	stop     context.CancelFunc
	done     chan struct{}
	caughtUp chan struct{}
	states   atomic.Int64
	first    time.Time

	mu   sync.Mutex
	lags *lags // nil: no measurement
}

func follow(ctx context.Context, c cluster.Config) *follower {
	f := &follower{engine: must.Get(cluster.Open(ctx, c)), table: fleet.New(), done: make(chan struct{}),
		caughtUp: make(chan struct{})}
	ctx, f.stop = context.WithCancel(ctx)
	go func() {
		defer close(f.done)
		_ = f.engine.FollowStates(ctx, f.put, func() { close(f.caughtUp) })
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

func (f *follower) put(id vehicle.ID, st *vehicle.State) {
	f.table.Put(id, fleet.Answer{Driving: st.Driving(), Throttle: st.Throttle()})
	if f.states.Add(1) == 1 {
		f.first = time.Now()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lags != nil {
		f.lags.add(time.Now(), vehicle.UnixMilli(st.Time))
	}
}

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

type rig struct {
	b       *bench
	nodes   map[string]*nodeprocess.Node
	cars    restart.Cars // to the node with role ingest
	rate    float64
	folded0 float64
	follow  *follower
}

func (b *bench) streams(replicas, partitions int) cluster.Config {
	return cluster.Config{Partitions: partitions, URLs: b.servers.urls, Replicas: replicas}
}

// Every node has the role admin, for its metrics.
func (b *bench) onNodes(ctx context.Context, partitions int, do func(*rig)) {
	c := b.streams(copies, partitions)
	restart.Fill(ctx, must.Get(cluster.Open(ctx, c)), b.plan.cars)
	r := &rig{b: b, nodes: make(map[string]*nodeprocess.Node), rate: float64(b.plan.cars) / reportEvery.Seconds()}
	r.cars.PerBody = perBody
	defer func() {
		for _, n := range r.nodes {
			n.Kill()
		}
	}()
	for _, role := range []string{"ingest", "derive", "query"} {
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
	must.Do(r.cars.Drive(ctx, b.plan.cars, r.rate, min(perBody, b.plan.cars)))
	r.drained(ctx)
	do(r)
}

func (r *rig) drained(ctx context.Context) {
	want := r.folded0 + float64(r.cars.Sent.Load())
	must.Get(r.nodes["derive"].AwaitMetrics(ctx, startLimit,
		func(m nodeprocess.Metrics) bool { return m["carstate_samples_folded_total"] >= want }))
}

// load returns the amounts used until all samples are folded, and the ages of the states. Each
// sample results in one state.
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
	c["states"], c["folds"] = derive["carstate_states_stored_total"],
		derive["carstate_fold_commit_duration_seconds_count"]
	c["commits"] = ingest["carstate_commit_samples_count"]
	return c
}

// lags are the ages of states in the fleet table, from when the sample was due.
type lags struct {
	from time.Time
	ms   []float64
	left float64 // states not in the table when the last sample was acknowledged
}

func (l *lags) add(now time.Time, t vehicle.UnixMilli) {
	if int64(t) < l.from.UnixMilli() {
		return // sent before the measurement
	}
	l.ms = append(l.ms, float64(now.UnixMicro())/1e3-float64(t))
}
