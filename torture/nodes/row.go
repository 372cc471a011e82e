// Package nodes is the row that disables NATS servers and nodes of carstate.
package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/row"
	"example.org/carstate/torture/writers"
)

var Row = row.Row{
	Name: "nodes", Counts: "disturbances", CI: 5,
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) {
	s := &system{a: a, net: newNetwork(), measured: make(measured)}
	defer func() { must.Do(s.net.close()) }()
	s.net.open(ctx)
	s.cluster = &natsCluster{net: s.net}
	defer s.cluster.close()
	s.cluster.start(ctx, a.Dir)
	defer func() {
		for _, n := range s.started {
			n.Kill()
		}
	}()
	s.follow = &following{a: s.a, at: make(map[vehicle.ID]signal.UnixMilli)}
	must.Do(nodeprocess.Until(ctx, startWithin, func(ctx context.Context) (err error) {
		s.engine, err = cluster.Open(ctx, cluster.Config{URLs: s.cluster.urls(), Replicas: servers,
			Partitions: partitions, Streams: 2, Known: s.follow.known})
		return err
	}))
	defer func() { must.Do(s.engine.Close()) }()
	for i := range carstates {
		s.nodes = append(s.nodes, s.startNode(ctx, fmt.Sprintf("node-%d", i)))
		must.Do(s.nodes[i].AwaitReady(ctx, startWithin))
	}
	s.token = must.Get(s.nodes[0].IssueToken(ctx, "Ada")).AccessToken
	rest, stopRest := context.WithCancel(ctx)
	defer s.stopTraffic(stopRest)
	s.startTraffic(ctx, rest)
	for _, step := range []func(context.Context){s.disturb, s.folderDies, s.together, s.revoke} {
		step(ctx)
		must.Do(ctx.Err())
	}
	s.load.Stop()
	s.compare(ctx)
	must.Do(ctx.Err())
	asked := s.asking.asked.Load()
	s.asking.mu.Lock()
	p99 := report.Quantile(s.asking.took, 0.99)
	s.take("the longest query, but to a node that is stopped or just woke up", report.Quantile(s.asking.took, 1))
	s.asking.mu.Unlock()
	before, without, after := s.alone(ctx)
	must.Do(ctx.Err())
	s.report(a)
	a.Figure("queries", float64(asked), "")
	a.Figure("queries, p99", row.Millis(p99), "ms")
	a.Aimed(fmt.Sprintf("%d revocations: refused on all three nodes, p99", revocations),
		float64(s.refused.Milliseconds()), "ms", "≤ 1 s", s.refused <= time.Second)
	ratio := func(x, y float64) float64 { return math.Round(100*x/y) / 100 }
	a.Figure("queries a second of eight clients, before the servers are cut off", math.Round(before.perSecond), "/s")
	a.AtLeast("queries a second without any server, to before", ratio(without.perSecond, before.perSecond), "×", 0.7)
	a.AtLeast("queries a second once they are back, to before", ratio(after.perSecond, before.perSecond), "×", 0.7)
	a.AtMost("CPU of the node a query without any server, to before", ratio(float64(without.cpu), float64(before.cpu)),
		"×", 1.2)
}

// The longest durations.
type measured map[string]time.Duration

func (s *system) take(name string, d time.Duration) {
	s.a.Logf("%s: %.1f s", name, d.Seconds())
	s.measured[name] = max(s.measured[name], d)
}

// In seconds.
var promised = []struct {
	name  string
	limit float64
}{
	{"a server killed: longest until writes are acknowledged again", 10},
	{"a server killed: then until every car has a new verdict, longest", 10},
	{"a server killed: a node's copies are current again after it can store, longest", 7},
	{"a node that folds is stopped: until every car has a new verdict, longest", 10},
	{"a node that folds is killed: until every car has a new verdict", 10},
	{"a server and a node that folds are killed together: until samples are acknowledged and verdicts are new again", 10},
	{"then until every car has a new verdict", 10},
	{"greatest age of a node's copy", 60},
	{"the longest query, but to a node that is stopped or just woke up", 2},
}

func (m measured) report(a *row.Attempt) {
	others := maps.Clone(m)
	for _, p := range promised {
		d, ok := m[p.name]
		delete(others, p.name)
		if !ok {
			p.name += " (not measured)"
		}
		a.Aimed(p.name, seconds(d), "s", fmt.Sprintf("≤ %g s", p.limit), ok && d.Seconds() <= p.limit)
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		a.Figure(name, seconds(m[name]), "s")
	}
}

func seconds(d time.Duration) float64 { return d.Round(10 * time.Millisecond).Seconds() }

const (
	carstates  = 3 // each with all roles
	sourceName = "gateway"
	// So few that each has cars, and the row notices if one has no owner.
	partitions  = 8
	startWithin = 2 * time.Minute
)

var layout = writers.Layout{HTTP: 4, MQTT: 1, Cars: 6}

type system struct {
	a       *row.Attempt
	net     *network
	cluster *natsCluster
	nodes   []*nodeprocess.Node
	started []*nodeprocess.Node // nodes and folders
	folder  *nodeprocess.Node   // with only the role derive
	folders int
	engine  *cluster.Engine
	measured

	token   string
	load    *writers.Fleet
	asking  asking
	refused time.Duration // after a revocation, p99
	follow  *following
	watch   *watching
	running sync.WaitGroup
}

// A node exits if the servers have no leader yet.
func (s *system) startNode(ctx context.Context, name string, flags ...string) (n *nodeprocess.Node) {
	o := nodeprocess.Options{Binary: s.a.Binary, Dir: filepath.Join(s.a.Dir, name)}
	must.Do(os.Mkdir(o.Dir, 0o700))
	o.Flags = append([]string{"--nats", s.cluster.urls(), "--replicas", "3", "--partitions", strconv.Itoa(partitions),
		"--retention", "24h"}, flags...)
	must.Do(nodeprocess.Until(ctx, startWithin, func(ctx context.Context) (err error) {
		n, err = nodeprocess.Start(ctx, o)
		return err
	}))
	s.started = append(s.started, n)
	return n
}

func (s *system) startTraffic(ctx, rest context.Context) {
	key := must.Get(s.nodes[0].AddSource(ctx, sourceName))
	must.Do(nodeprocess.Until(ctx, startWithin, func(ctx context.Context) error { return s.cluster.led(ctx, true) }))
	s.load = writers.Start(ctx, s.a, s.nodes, sourceName, key, layout)
	for _, n := range s.nodes {
		for _, id := range layout.All() {
			must.Do(n.AwaitAnswer(ctx, startWithin, s.token, string(id), time.Time{}))
		}
	}
	s.watch = new(watching)
	complete := make(chan struct{}) // an owner that is then stopped would not reply
	s.running.Go(func() { s.follow.run(rest, s.engine, func() { close(complete) }) })
	select {
	case <-complete:
	case <-ctx.Done():
	}
	for i, n := range s.nodes {
		s.running.Go(func() { s.watch.run(rest, i, n) })
		for g := range askersOfNode {
			s.running.Go(func() { s.ask(rest, i, g) })
		}
		s.running.Go(func() {
			select {
			case <-rest.Done():
			case <-n.Ended():
				said := n.Log()
				s.a.Wrong("node %d ended: %.2000s", i, said[max(0, strings.Index(said, "\npanic: ")):])
			}
		})
	}
}

func (s *system) stopTraffic(stopRest func()) {
	stopRest()
	_ = s.net.nodes("up") // so that what waits for the servers ends
	s.engine.Cut()
	if s.load != nil {
		s.load.Stop()
	}
	s.running.Wait()
}

type kind struct {
	name         string
	strike, heal func(c *natsCluster, server int) error
}

// Limits are promised for the first kind.
var kinds = []kind{
	{"killed",
		func(c *natsCluster, i int) error { c.servers[i].Kill(); return nil },
		func(c *natsCluster, i int) error { return c.servers[i].Start() }},
	{"stopped",
		func(c *natsCluster, i int) error { return c.servers[i].Pause() },
		func(c *natsCluster, i int) error { return c.servers[i].Resume() }},
	{"cut off",
		func(c *natsCluster, i int) error { return c.net.cable(i, "down") },
		func(c *natsCluster, i int) error { return c.net.cable(i, "up") }},
}

const (
	// For writes to resume without a server. The promised limits are shorter.
	outageWithin = 30 * time.Second
	settleWithin = 90 * time.Second
)

// Each kind occurs once before any occurs again, killed first. Every other one hits the leader of a
// stream until writes and verdicts resume.
func (s *system) disturb(ctx context.Context) {
	rnd := s.a.Rand(1)
	var order []kind
	for i := range s.a.Count {
		if len(order) == 0 {
			order = slices.Clone(kinds)
			mixed := order[1:]
			if i > 0 {
				mixed = order
			}
			rnd.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		}
		if i%3 == 0 {
			s.freeze(ctx, rnd)
		}
		server, led, lasting := rnd.IntN(servers), "", i%2 == 0
		if lasting {
			led = streams[rnd.IntN(4)] // which are written to all the time
			server = s.cluster.leader(ctx, led)
			led = ", the leader of " + led + ","
		}
		s.a.Logf("%d of %d: server %d%s is %s", i+1, s.a.Count, server, led, order[0].name)
		s.strike(ctx, rnd, order[0], lasting, server)
		must.Do(ctx.Err())
		order = order[1:]
	}
}

func (s *system) strike(ctx context.Context, rnd *rand.Rand, t kind, lasting bool, server int) {
	s.load.Begin(time.Now())
	s.watch.begin()
	must.Do(t.strike(s.cluster, server))
	if lasting {
		s.outlast(ctx, fmt.Sprintf("while server %d is %s", server, t.name), time.Now(), "a server "+t.name+": ")
		row.Pause(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	} else {
		row.Pause(ctx, 200*time.Millisecond+time.Duration(rnd.Int64N(int64(6*time.Second))))
	}
	must.Do(t.heal(s.cluster, server))
	s.settle(ctx, fmt.Sprintf("after server %d was %s", server, t.name))
	stood, _ := s.load.Worst(time.Now())
	s.take("a server "+t.name+": longest until writes are acknowledged again", stood)
	s.take("greatest age of a node's copy", s.watch.greatestAge())
	if d, ok := s.watch.feedsBehind(); ok {
		s.take("a server "+t.name+": a node's copies are current again after it can store, longest", d)
	}
}

// Samples may be acknowledged until the nodes notice that they cannot store states.
func (s *system) outlast(ctx context.Context, when string, struck time.Time, of string) {
	var led time.Time
	s.promise(ctx, outageWithin, when, func() error {
		if led.IsZero() {
			if err := s.cluster.led(ctx, false); err != nil {
				return cmp.Or(s.load.Flowing(struck), err)
			}
			led = time.Now()
		}
		return s.load.Flowing(led)
	})
	_, over := s.load.Worst(time.Now())
	s.promise(ctx, outageWithin, when, func() error { return s.follow.newerThan(signal.At(over)) })
	s.take(of+"then until every car has a new verdict, longest", time.Since(over))
}

func (s *system) settle(ctx context.Context, when string) {
	since := time.Now()
	s.promise(ctx, settleWithin, when, func() error {
		err := cmp.Or(s.load.Flowing(since), s.follow.newerThan(signal.At(since)), s.watch.healthy())
		if err == nil {
			err = s.cluster.led(ctx, true)
		}
		return err
	})
}

func (s *system) freeze(ctx context.Context, rnd *rand.Rand) {
	i := s.owner(ctx, rnd)
	s.a.Logf("node %d, which folds, is stopped", i)
	s.watch.begin()
	s.watch.frozen[i].Store(true)
	s.asking.frozen[i].Store(true)
	s.take("a node that folds is stopped: until every car has a new verdict, longest",
		s.taken(ctx, s.nodes[i], syscall.SIGSTOP, fmt.Sprintf("while node %d is stopped", i)))
	row.Pause(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	must.Do(s.nodes[i].Signal(syscall.SIGCONT))
	s.watch.frozen[i].Store(false)
	s.settle(ctx, fmt.Sprintf("after node %d was stopped", i))
	s.asking.frozen[i].Store(false)
}

func (s *system) taken(ctx context.Context, n *nodeprocess.Node, sent syscall.Signal, when string) time.Duration {
	must.Do(n.Signal(sent))
	at := time.Now() // it may have folded until the signal
	s.promise(ctx, outageWithin, when, func() error { return s.follow.newerThan(signal.At(at)) })
	return time.Since(at)
}

func (s *system) owner(ctx context.Context, rnd *rand.Rand) (node int) {
	for _, node = range rnd.Perm(len(s.nodes)) {
		if must.Get(s.nodes[node].Metrics(ctx))["carstate_fold_partitions"] > 0 {
			return node
		}
	}
	must.Fail("no node has a partition to fold")
	return 0
}

func (s *system) promise(ctx context.Context, limit time.Duration, when string, holds func() error) {
	if err := nodeprocess.Until(ctx, limit, func(context.Context) error { return holds() }); err == nil ||
		ctx.Err() != nil {
		return
	}
	if err := holds(); err != nil {
		s.a.Wrong("%s, for %s: %v", when, limit, err)
	}
}

func (s *system) folderDies(ctx context.Context) {
	s.startFolder(ctx)
	s.a.Logf("a node that folds is killed")
	s.watch.begin()
	s.take("a node that folds is killed: until every car has a new verdict",
		s.taken(ctx, s.folder, syscall.SIGKILL, "while a node that folds is killed"))
	s.settle(ctx, "after a node that folds was killed")
}

// Without a leader of the states no lease can be renewed, so the others cannot tell that the node
// is gone.
func (s *system) together(ctx context.Context) {
	rnd := s.a.Rand(3)
	s.startFolder(ctx)
	led := streams[rnd.IntN(3)]
	server := s.cluster.leader(ctx, led)
	s.a.Logf("server %d, the leader of %s, and a node that folds are killed together", server, led)
	s.load.Begin(time.Now())
	s.watch.begin()
	must.Do(s.folder.Signal(syscall.SIGKILL))
	s.cluster.servers[server].Kill()
	struck := time.Now()
	const when = "while a server and a node that folds are killed"
	s.promise(ctx, outageWithin, when, func() error {
		return errors.Join(s.load.Flowing(struck), s.follow.someNewerThan(signal.At(struck)))
	})
	flowing := time.Now()
	s.promise(ctx, outageWithin, when, func() error { return s.follow.newerThan(signal.At(flowing)) })
	s.take("a server and a node that folds are killed together: until samples are acknowledged and verdicts are new again",
		flowing.Sub(struck))
	s.take("then until every car has a new verdict", time.Since(flowing))
	must.Do(s.cluster.servers[server].Start())
	s.settle(ctx, "after a server and a node that folds were killed")
}

// The name of a node decides which partitions it gets, if any.
func (s *system) startFolder(ctx context.Context) {
	for range 20 {
		s.folders++
		s.folder = s.startNode(ctx, fmt.Sprintf("folder-%d", s.folders), "--roles", "derive")
		// Then the previous owners have released the partitions.
		folds := func(m nodeprocess.Metrics) bool {
			return m["carstate_fold_members"] == carstates+1 &&
				(m["carstate_fold_partitions"] == 0 || m["carstate_samples_folded_total"] > 0)
		}
		m := must.Get(s.folder.AwaitMetrics(ctx, startWithin, folds))
		if m["carstate_fold_partitions"] > 0 {
			since := time.Now()
			s.promise(ctx, settleWithin, "after one more node folds",
				func() error { return s.follow.newerThan(signal.At(since)) })
			return
		}
		must.Do(s.folder.Stop())
	}
	must.Fail("of 20 nodes none was given a partition to fold")
}
