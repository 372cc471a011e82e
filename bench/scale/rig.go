package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"carstate/bench/restart"
	"carstate/internal/fleet"
	"carstate/internal/nodeprocess"
	"carstate/internal/stream"
	"carstate/internal/vehicle"
)

// startLimit bounds the start of a node on two busy cores.
const startLimit = 2 * time.Minute

// follower is a fleet table in this process, fed as that of a node is.
type follower struct {
	engine   *stream.Engine
	table    *fleet.Table
	stop     context.CancelFunc
	done     chan struct{}
	caughtUp chan struct{}
	states   atomic.Int64 // that the feed has brought
	first    time.Time    // when it brought the first

	mu   sync.Mutex
	lags *lags // what is measured at present; nil: nothing
}

func follow(ctx context.Context, c stream.Config) (*follower, error) {
	e, err := stream.Open(ctx, c)
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

func (f *follower) put(id vehicle.ID, st vehicle.State) {
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

// measure has the follower note how old each state is when it is in the table.
// nil ends that.
func (f *follower) measure(l *lags) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lags = l
}

// seen is how many states of what is measured are in the table, without those of
// samples that were sent before.
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

// rig is carstate on the cluster, the follower and what it has done so far.
type rig struct {
	b       *bench
	config  stream.Config
	nodes   map[string]*nodeprocess.Node // by what the figures call them
	cars    restart.Cars                 // that report to the node that takes in
	derive  *nodeprocess.Node
	judged0 float64
}

// streams is how the streams of a rig are made.
func (b *bench) streams(replicas, partitions int) stream.Config {
	return stream.Config{URLs: b.servers.URLs(), Replicas: replicas, Partitions: partitions}
}

// start starts nodes, one for each of the given roles.
func (b *bench) start(ctx context.Context, c stream.Config, roles map[string]string) (_ *rig, err error) {
	r := &rig{b: b, config: c, nodes: make(map[string]*nodeprocess.Node)}
	r.cars.PerBody = perBody
	defer func() {
		if err != nil {
			r.kill()
		}
	}()
	for name, these := range roles {
		b.nodes++
		n, err := nodeprocess.Start(ctx, nodeprocess.Options{
			Binary: b.Binary, Dir: filepath.Join(b.Dir, fmt.Sprint("node", b.nodes)),
			Flags: []string{"--nats", c.URLs, "--replicas", fmt.Sprint(c.Replicas), "--partitions", fmt.Sprint(c.Partitions), "--roles", these},
		})
		if err != nil {
			return nil, err
		}
		r.nodes[name] = n
		if err := n.AwaitReady(ctx, startLimit); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// source adds the source that the cars report through.
func (r *rig) source(ctx context.Context) (err error) {
	r.cars.Key, err = r.cars.Node.AddSource(ctx, "gateway")
	if err == nil {
		r.judged0, err = r.judged(ctx)
	}
	return err
}

func (r *rig) judged(ctx context.Context) (float64, error) {
	m, err := r.derive.Metrics(ctx)
	return m["carstate_samples_folded_total"], err
}

// drained waits until all that was sent is judged.
func (r *rig) drained(ctx context.Context) error {
	return nodeprocess.Until(ctx, startLimit, func(ctx context.Context) error {
		n, err := r.judged(ctx)
		if want := r.judged0 + float64(r.cars.Sent.Load()); err == nil && n < want {
			err = fmt.Errorf("%.0f of %.0f samples were judged", n, want)
		}
		return err
	})
}

func (r *rig) kill() {
	for _, n := range r.nodes {
		n.Kill()
		_ = os.RemoveAll(n.Dir) // nothing but a key and a name
	}
}

// spent is what was used between two moments.
type spent struct {
	took    time.Duration
	nodes   map[string]time.Duration // CPU of each node
	servers [copies]work
	self    time.Duration // CPU of this process
	machine processors
	states  float64 // stored
	folds   float64 // that stored them
	commits float64 // group commits of samples
	read    float64 // states that derive had to read
}

// all is the CPU of the nodes and servers together.
func (s *spent) all() (d time.Duration) {
	for _, n := range s.nodes {
		d += n
	}
	return d + all(s.servers).cpu
}

// during measures what is used while f runs.
func (r *rig) during(ctx context.Context, f func() error) (*spent, error) {
	before, err := r.reading(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := r.reading(ctx)
	if err != nil {
		return nil, err
	}
	s := &spent{
		took: took, nodes: make(map[string]time.Duration), self: after.self - before.self,
		machine: processors{busy: after.machine.busy - before.machine.busy, all: after.machine.all - before.machine.all},
		states:  after.states - before.states, folds: after.folds - before.folds, commits: after.commits - before.commits, read: after.read - before.read,
	}
	for name := range after.nodes {
		s.nodes[name] = after.nodes[name] - before.nodes[name]
	}
	for i := range s.servers {
		s.servers[i] = after.servers[i].minus(before.servers[i])
	}
	return s, nil
}

// reading is all that was used so far.
func (r *rig) reading(ctx context.Context) (s spent, err error) {
	s.nodes = make(map[string]time.Duration)
	for name, n := range r.nodes {
		if s.nodes[name], err = n.CPU(); err != nil {
			return s, err
		}
	}
	if s.servers, err = r.b.servers.work(ctx); err != nil {
		return s, err
	}
	s.self = selfCPU()
	if s.machine, err = machineCPU(); err != nil {
		return s, err
	}
	m, err := r.derive.Metrics(ctx)
	if err != nil {
		return s, err
	}
	s.states, s.folds, s.read = m["carstate_states_stored_total"], m["carstate_fold_commit_duration_seconds_count"], m["carstate_states_read_total"]
	if m, err = r.cars.Node.Metrics(ctx); err != nil {
		return s, err
	}
	s.commits = m["carstate_commit_samples_count"]
	return s, nil
}

// processors is the time of all processors of this machine.
type processors struct{ busy, all float64 } // in the kernel's ticks

// inUse is the part of the processors that was in use, by whomever, in percent, and
// that which was in use by others than the measured and this process.
func (s *spent) inUse() (percent, others float64) {
	percent = 100 * s.machine.busy / s.machine.all
	ours := (s.all() + s.self).Seconds() / s.took.Seconds() / float64(runtime.NumCPU())
	return percent, percent - 100*ours
}

// machineCPU is what the processors of this machine have done since its start.
func machineCPU() (p processors, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return p, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i, field := range fields[1:9] { // what guests use is in the first two
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return p, fmt.Errorf("/proc/stat: %w", err)
		}
		p.all += ticks
		if i != 3 && i != 4 { // idle, and idle while something waits for a disk
			p.busy += ticks
		}
	}
	return p, nil
}

// selfCPU is the user and system time of this process.
func selfCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it knows RUSAGE_SELF
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
