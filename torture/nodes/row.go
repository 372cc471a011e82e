// Package nodes is a row (one test) of the torture. It disables servers of the NATS cluster and
// nodes of carstate, while cars report and developers query.
package nodes

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/internal/store/cluster"
	"carstate/torture/defects"
	"carstate/torture/row"
	"carstate/torture/writers"
)

//go:embed row.md.tmpl
var prose string

// Row is row 4 of the torture: the loss of a NATS server, or of a node, in a cluster.
var Row = row.Row{
	Number: 4, Name: "nodes", Title: "A NATS server killed, stopped or cut off", Text: prose,
	Counts: "disturbances", CI: 5, Long: 100,
	Controls: defects.Controls("nodes", "unfenced", "one-replica"),
	Needs:    needs,
	Run:      run,
}

func run(ctx context.Context, a *row.Attempt) {
	s := &system{a: a, net: newNetwork(), measured: make(measured), stopLoad: func() {}, stopRest: func() {}}
	defer func() { must.Do(s.net.close()) }()
	s.net.open(ctx, servers)
	s.cluster = &natsCluster{net: s.net}
	defer s.cluster.close()
	s.cluster.start(ctx, a.Dir)
	defer func() {
		for _, n := range s.nodes {
			n.Kill()
		}
		if s.folder != nil {
			s.folder.Kill()
		}
	}()
	for i := range carstates {
		s.nodes = append(s.nodes, s.startNode(ctx, fmt.Sprintf("node-%d", i)))
		must.Do(s.nodes[i].AwaitReady(ctx, startWithin))
	}
	s.token = must.Get(s.nodes[0].IssueToken(ctx, "Ada")).AccessToken
	s.engine = must.Get(cluster.Open(ctx, cluster.Config{URLs: s.cluster.urls(), Replicas: servers}))
	defer func() { must.Do(s.engine.Close()) }()
	defer s.stopTraffic()
	s.startTraffic(ctx)
	var revoked []time.Duration
	for _, step := range []func(context.Context){s.disturb, s.folderDies, s.together,
		func(ctx context.Context) { revoked = s.revoke(ctx) }} {
		step(ctx)
		must.Do(ctx.Err())
	}
	s.stopLoad()
	s.load.Wait()
	s.compare(ctx)
	must.Do(ctx.Err())
	asked := s.asking.asked.Load()
	s.asking.mu.Lock()
	p99 := row.Percentile(s.asking.took, 0.99)
	s.take("the longest query, but to a node that is stopped or just woke up", s.asking.longest)
	s.asking.mu.Unlock()
	before, without, after := s.alone(ctx)
	must.Do(ctx.Err())
	s.report(a)
	s.load.Figures()
	a.Figure("states stored and followed", float64(s.follow.states), "")
	a.Figure("queries", float64(asked), "")
	a.Figure("queries, p99", float64(p99.Microseconds())/1000, "ms")
	p := row.Percentile(revoked, 0.99)
	a.Aimed(fmt.Sprintf("%d revocations: refused on all three nodes, p99", len(revoked)), float64(p.Milliseconds()), "ms",
		"≤ 1 s", p <= time.Second)
	ratio := func(x, y float64) float64 { return math.Round(100*x/y) / 100 }
	a.Figure("queries a second of eight clients, before the servers are cut off", math.Round(before.perSecond), "/s")
	a.AtLeast("queries a second without any server, to before", ratio(without.perSecond, before.perSecond), "×", 0.7)
	a.AtLeast("queries a second once they are back, to before", ratio(after.perSecond, before.perSecond), "×", 0.7)
	a.Figure("their p99 without any server, to before", ratio(float64(without.p99), float64(before.p99)), "×")
	a.AtMost("CPU of the node a query without any server, to before", ratio(float64(without.cpu), float64(before.cpu)),
		"×", 1.2)
}

// measured holds the longest durations that were measured, by their names in the document.
type measured map[string]time.Duration

func (m measured) take(name string, d time.Duration) { m[name] = max(m[name], d) }

// promised are the promised limits of durations, in seconds.
var promised = []struct {
	name  string
	limit float64
}{
	{"a server killed: longest until writes are acknowledged again", 10},
	{"a server killed: then until every car has a new verdict, longest", 10},
	{"a server killed: a node's copies are current again after it can store, longest", 7},
	{"a node that folds is stopped: until every car has a new verdict, longest", 10},
	{"a node that folds is killed: until every car has a new verdict", 10},
	{"a server and a node that folds are killed together: until samples are acknowledged and verdicts stored again", 10},
	{"then until every car has a new verdict", 10},
	{"greatest age of a node's copy", 60},
	{"the longest query, but to a node that is stopped or just woke up", 2},
}

// report compares the durations with their limits. A duration that was not measured misses its.
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

// seconds returns a duration in seconds, rounded to 10 ms.
func seconds(d time.Duration) float64 { return d.Round(10 * time.Millisecond).Seconds() }

// carstates is the number of nodes of carstate. Each has all roles.
const carstates = 3

// sourceName is the name of the cars' source. layout says how many cars report.
const sourceName = "gateway"

var layout = writers.Layout{HTTP: 4, MQTT: 1, Cars: 6}

// partitions is the number of partitions. It is so small that each partition has cars. So if a
// partition has no owner, some cars get no new verdicts, and the row notices.
const partitions = 8

// startWithin is the time limit of each step of the start, even on a busy machine.
const startWithin = 2 * time.Minute

// system is everything that runs in the row.
type system struct {
	a       *row.Attempt
	net     *network
	cluster *natsCluster
	nodes   []*nodeprocess.Node
	folder  *nodeprocess.Node // the last node that was started with only the role derive; nil: none yet
	folders int               // how many such nodes were started
	engine  *cluster.Engine   // of this process, to read what is stored
	measured

	token    string
	load     *writers.Fleet
	asking   asking
	follow   *following
	watch    *watching
	stopLoad context.CancelFunc
	stopRest context.CancelFunc
	running  sync.WaitGroup // goroutines of the queries, and of follow and watch
}

// startNode starts a node, again if it exits because the servers have not elected a leader yet.
func (s *system) startNode(ctx context.Context, name string, flags ...string) (n *nodeprocess.Node) {
	o := nodeprocess.Options{Binary: s.a.Binary, Dir: filepath.Join(s.a.Dir, name)}
	must.Do(os.Mkdir(o.Dir, 0o700))
	o.Flags = append([]string{"--nats", s.cluster.urls(), "--replicas", "3", "--partitions", strconv.Itoa(partitions),
		"--retention", "24h"}, flags...)
	must.Do(nodeprocess.Until(ctx, startWithin, func(ctx context.Context) (err error) {
		n, err = nodeprocess.Start(ctx, o)
		return err
	}))
	return n
}

// startTraffic starts the cars and, once every node knows them, the queries and observers.
func (s *system) startTraffic(ctx context.Context) {
	key := must.Get(s.nodes[0].AddSource(ctx, sourceName))
	must.Do(nodeprocess.Until(ctx, startWithin, s.cluster.whole))
	loading, stopLoad := context.WithCancel(ctx)
	s.stopLoad = stopLoad
	s.load = writers.Start(loading, s.a, s.nodes, sourceName, key, layout)
	for _, n := range s.nodes {
		for _, id := range layout.All() {
			must.Do(n.AwaitAnswer(ctx, startWithin, s.token, string(id), time.Time{}))
		}
	}
	rest, stopRest := context.WithCancel(ctx)
	s.stopRest = stopRest
	s.follow, s.watch = newFollowing(s.a), new(watching)
	s.running.Go(func() { s.follow.run(rest, s.engine) })
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

// stopTraffic ends the cars, the queries and the observers.
func (s *system) stopTraffic() {
	s.stopLoad()
	s.stopRest()
	_ = s.net.nodes("up") // so that operations that wait for the servers end
	s.engine.Cut()        // otherwise goroutines that wait for an answer of NATS would delay the end
	if s.load != nil {
		s.load.Wait()
	}
	s.running.Wait()
}
