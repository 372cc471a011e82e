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
	"example.org/carstate/bench/report"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/vehicle"
)

// startLimit is the time limit for the start of a node on two busy cores.
const startLimit = 2 * time.Minute

// follower is a fleet table in this process. It follows the feed of states in the same way as a
// node does.
type follower struct {
	engine   *cluster.Engine
	table    *fleet.Table
	stop     context.CancelFunc
	done     chan struct{}
	caughtUp chan struct{}
	states   atomic.Int64 // received from the feed
	first    time.Time    // when the first was received

	mu   sync.Mutex // guards lags
	lags *lags      // the measurement in progress; nil: none
}

func follow(ctx context.Context, c cluster.Config) (*follower, error) {
	e, err := cluster.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	f := &follower{engine: e, table: fleet.New(), done: make(chan struct{}), caughtUp: make(chan struct{})}
	ctx, f.stop = context.WithCancel(ctx)
	go func() {
		defer close(f.done)
		_ = e.FollowStates(ctx, f.put, func() { close(f.caughtUp) }) // it ends with the context
	}()
	return f, nil
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

// measure sets l as the collector of ages: from now on, when a state is put into the table, its age
// is added to l. If l is nil, no ages are collected.
func (f *follower) measure(l *lags) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lags = l
}

// seen returns how many states the table has received since measure was called with a collector,
// which must have happened. States of samples that were sent before the measurement are not
// counted.
func (f *follower) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lags.ms)
}

func (f *follower) close() error {
	f.stop()
	<-f.done
	return f.engine.Close()
}

// rig is a set of carstate nodes on the NATS servers.
type rig struct {
	b       *bench
	config  cluster.Config
	nodes   map[string]*nodeprocess.Node // by the names that they have in the figures
	cars    restart.Cars                 // they report to the node with role ingest
	derive  *nodeprocess.Node
	folded0 float64
}

// streams returns the configuration of a rig's streams.
func (b *bench) streams(replicas, partitions int) cluster.Config {
	return cluster.Config{Partitions: partitions, URLs: b.servers.URLs(), Replicas: replicas}
}

// fill creates the streams, with the states of n vehicles.
func fill(ctx context.Context, c cluster.Config, n int) {
	restart.Fill(ctx, must.Get(cluster.Open(ctx, c)), n)
}

// newRig returns a rig without nodes.
func (b *bench) newRig(c cluster.Config) *rig {
	r := &rig{b: b, config: c, nodes: make(map[string]*nodeprocess.Node)}
	r.cars.PerBody = perBody
	return r
}

// start starts one node for each entry of roles, which maps the node's name in the figures to its
// roles, and waits until they are ready.
func (r *rig) start(ctx context.Context, roles map[string]string) {
	for name, these := range roles {
		r.b.nodes++
		n, err := nodeprocess.StartReady(ctx, nodeprocess.Options{
			Binary: r.b.Binary, Dir: filepath.Join(r.b.Dir, fmt.Sprint("node", r.b.nodes)),
			Flags: []string{"--nats", r.config.URLs, "--replicas", fmt.Sprint(r.config.Replicas), "--partitions",
				fmt.Sprint(r.config.Partitions), "--roles", these},
		}, startLimit)
		if err != nil {
			must.Fail("%s: %w", name, err)
		}
		r.nodes[name] = n
	}
}

// source adds the source through which the cars report, and notes how many samples were folded
// before.
func (r *rig) source(ctx context.Context) {
	r.cars.Key = must.Get(r.cars.Node.AddSource(ctx, "gateway"))
	r.folded0 = must.Get(r.derive.Metrics(ctx))["carstate_samples_folded_total"]
}

// drained waits, for startLimit at most, until all samples that were sent are folded.
func (r *rig) drained(ctx context.Context) {
	want := r.folded0 + float64(r.cars.Sent.Load())
	must.Get(r.derive.AwaitMetrics(ctx, startLimit,
		func(m nodeprocess.Metrics) bool { return m["carstate_samples_folded_total"] >= want }))
}

func (r *rig) kill() {
	for _, n := range r.nodes {
		n.Kill()
		_ = os.RemoveAll(n.Dir) // it holds only a key and a name
	}
}

// during returns how much CPU, memory and traffic the nodes and servers use while f runs, and under
// "took" the seconds that f takes.
func (r *rig) during(ctx context.Context, f func()) counters {
	before := r.reading(ctx)
	began := time.Now()
	f()
	must.Do(ctx.Err())
	took := time.Since(began).Seconds()
	spent := r.reading(ctx).since(before)
	spent["took"] = took
	return spent
}

// reading returns how much CPU, memory and traffic the nodes and servers have used so far.
func (r *rig) reading(ctx context.Context) counters {
	c := r.b.servers.work(ctx)
	for name, n := range r.nodes {
		cpu := must.Get(n.CPU())
		c["CPU of "+name] = cpu.Seconds()
		c["CPU of nodes"] += cpu.Seconds()
	}
	c["CPU of this process"] = must.Get(nodeprocess.CPUOf(os.Getpid())).Seconds()
	derive, ingest := must.Get(r.derive.Metrics(ctx)), must.Get(r.cars.Node.Metrics(ctx))
	c["states"], c["folds"] = derive["carstate_states_stored_total"], derive["carstate_fold_commit_duration_seconds_count"]
	c["commits"] = ingest["carstate_commit_samples_count"]
	machineCPU(c)
	return c
}

// lags collects how old states were when they were put into the fleet table. The age is measured
// from the time at which the sample was due. One goroutine adds the ages; other goroutines read
// them only after that goroutine has ended.
type lags struct {
	from  time.Time
	ms    []float64
	after []time.Duration // when each state was put, after from
	left  float64         // number of states not in the table when the last sample was acknowledged
}

func newLags() *lags { return &lags{from: time.Now()} }

func (l *lags) add(now time.Time, t vehicle.UnixMilli) {
	if int64(t) < l.from.UnixMilli() {
		return // sent before the measurement
	}
	l.ms = append(l.ms, float64(now.UnixMicro())/1e3-float64(t))
	l.after = append(l.after, now.Sub(l.from))
}

// between returns the lags, in ms, of the states that were put into the table between two times,
// which count from the beginning of the measurement.
func (l *lags) between(from, to time.Duration) (ms []float64) {
	for i, at := range l.after {
		if at >= from && at < to {
			ms = append(ms, l.ms[i])
		}
	}
	return ms
}

// growth returns how much the median of the lags of a second grows from one second of a measurement
// to the next, in ms.
func (l *lags) growth(lasting time.Duration) float64 {
	var seconds, ms []float64
	for at := time.Duration(0); at+time.Second <= lasting; at += time.Second {
		if these := l.between(at, at+time.Second); len(these) > 0 {
			seconds, ms = append(seconds, float64(len(seconds))), append(ms, report.Quantile(these, 0.5))
		}
	}
	return report.Slope(seconds, ms)
}
