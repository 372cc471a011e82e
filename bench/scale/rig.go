package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/periodic"
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
	was := f.table.Put(id, fleet.Answer{Driving: a.Driving, Throttle: a.Throttle})
	at := max(a.Driving.Time, a.Throttle.Time)
	f.mu.Lock()
	defer f.mu.Unlock()
	// A new owner publishes all answers again.
	if f.lags != nil && at > max(was.Driving.Time, was.Throttle.Time) {
		f.lags.add(time.Now(), at)
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
	return f.lags.seen
}

func (f *follower) close() {
	f.stop()
	<-f.done
	must.Do(f.engine.Close())
}

// rig is nodes on the NATS servers, and a follower.
type rig struct {
	b      *bench
	nodes  map[string]*nodeprocess.Node // by roles
	config cluster.Config
	cars   restart.Cars // they report to the nodes with role ingest
	rate   float64      // samples a second of all cars, one every reportEvery
	follow *follower
}

var eachRole = []string{"derive", "ingest", "query"}

// onNodes calls do with one node for each of roles, on streams that hold the states of cars. Every node
// also serves the admin listener, from which the bench reads its metrics.
func (b *bench) onNodes(ctx context.Context, cars, partitions int, roles []string, do func(*rig)) {
	c := cluster.Config{Partitions: partitions, URLs: b.servers.urls, Replicas: copies}
	restart.Fill(ctx, must.Get(cluster.Open(ctx, c)), cars, restart.AllSignals)
	r := &rig{b: b, nodes: make(map[string]*nodeprocess.Node), config: c, rate: float64(cars) / reportEvery.Seconds()}
	r.cars.PerBody = perBody
	defer func() {
		for _, n := range r.nodes {
			n.Kill()
		}
	}()
	// A node is ready once it has the answers of all owners, so derive is first.
	for _, role := range roles {
		n := r.start(ctx, role)
		if role != "derive" && role != "query" {
			r.cars.Nodes = append(r.cars.Nodes, n)
		}
	}
	r.cars.Key = must.Get(r.cars.Nodes[0].AddSource(ctx, "gateway"))
	c.DataDir = filepath.Join(b.Dir, "follower")
	r.follow = follow(ctx, c)
	defer r.follow.close()
	r.follow.await(ctx)
	// The first samples are folded only once each partition has an owner again.
	r.load(ctx, r.rate, int(r.rate*b.plan.first.Seconds()))
	do(r)
}

// start starts a node with one role, or with every role if its name is not one.
func (r *rig) start(ctx context.Context, name string) *nodeprocess.Node {
	flags := []string{"--nats", r.config.URLs, "--replicas", fmt.Sprint(r.config.Replicas), "--partitions", fmt.Sprint(r.config.Partitions)}
	if slices.Contains(eachRole, name) {
		flags = append(flags, "--roles", name+",admin")
	}
	r.nodes[name] = must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{
		Binary: r.b.Binary, Dir: must.Get(os.MkdirTemp(r.b.Dir, name)), Flags: flags,
	}, startLimit))
	return r.nodes[name]
}

// load lets the cars report at a rate, in samples per second, and waits, for startLimit at most, until
// the follower has all answers. It returns the amounts used in that time ("took" is in seconds), and the ages of the
// states. Each sample results in one state, because the next of the same car is seconds later.
func (r *rig) load(ctx context.Context, rate float64, samples int) (counters, *lags) {
	l := &lags{from: time.Now()}
	r.follow.measure(l)
	defer r.follow.measure(nil)
	before, began := r.reading(ctx), time.Now()
	must.Do(r.cars.Drive(ctx, int(r.rate*reportEvery.Seconds()), rate, samples))
	l.left = float64(max(0, samples-r.follow.seen()))
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for r.follow.seen() < samples {
		must.Do(periodic.Pause(ctx, 20*time.Millisecond), ctx.Err())
	}
	took := time.Since(began).Seconds()
	spent := r.reading(ctx).since(before)
	spent["took"] = took
	return spent, l
}

const saved, commits = "carstate_checkpoint_bytes_total", "carstate_commit_samples_count"

func (r *rig) reading(ctx context.Context) counters {
	c := r.b.servers.work(ctx)
	for name, n := range r.nodes {
		cpu := must.Get(n.CPU()).Seconds()
		c["CPU of "+name] = cpu
		c["CPU of nodes"] += cpu
		m := must.Get(n.Metrics(ctx))
		for _, name := range []string{saved, commits} {
			c[name] += m[name]
		}
	}
	c["CPU of this process"] = must.Get(nodeprocess.CPUOf(os.Getpid())).Seconds()
	return c
}

// lags has how old states were when they were put into the fleet table, from when the sample was
// due. One goroutine adds the ages; others read them only after it has ended.
type lags struct {
	from time.Time
	seen int
	ms   []float64 // of every tenth
	most float64
	left float64 // number of states not in the table when the last sample was acknowledged
}

func (l *lags) add(now time.Time, t signal.UnixMilli) {
	if int64(t) < l.from.UnixMilli() {
		return // sent before the measurement
	}
	ms := float64(now.UnixMicro())/1e3 - float64(t)
	if l.most = max(l.most, ms); l.seen%10 == 0 {
		l.ms = append(l.ms, ms)
	}
	l.seen++
}
