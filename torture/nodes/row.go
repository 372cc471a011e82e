// Package nodes is a row (one test) of the torture. It disables servers of the NATS cluster and
// nodes of carstate, while cars report and developers query.
package nodes

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"carstate/bench/must"
	"carstate/internal/store/cluster"
	"carstate/torture/defects"
	"carstate/torture/row"
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
	s := &system{a: a, net: must.Get(openNetwork(ctx, servers)), stopLoad: func() {}, stopRest: func() {}}
	defer func() { must.Do(s.net.close()) }()
	s.cluster = &natsCluster{net: s.net}
	defer s.cluster.close()
	s.cluster.start(ctx, a.Dir)
	defer s.killNodes()
	s.startNodes(ctx)
	s.engine = must.Get(cluster.Open(ctx, cluster.Config{URLs: s.cluster.urls(), Replicas: servers}))
	defer func() { must.Do(s.engine.Close()) }()
	defer s.stopTraffic()
	s.startTraffic(ctx)
	m := s.disturb(ctx)
	must.Do(ctx.Err())
	taken := s.folderDies(ctx)
	must.Do(ctx.Err())
	back, all := s.together(ctx, rand.New(rand.NewPCG(a.Seed, 3)))
	must.Do(ctx.Err())
	revoked := s.revoke(ctx)
	must.Do(ctx.Err())
	s.stopLoad()
	s.load.Wait()
	s.compare(ctx)
	must.Do(ctx.Err())
	asked := s.asking.asked.Load()
	p99, wait := s.asking.delays()
	before, without, after := s.alone(ctx)
	must.Do(ctx.Err())
	within := func(name string, d, limit time.Duration) { aimed(a, name, longest{d, true}, limit) }
	ratio := func(x, y float64) float64 { return math.Round(100*x/y) / 100 }
	m.report(a)
	within("a node that folds is killed: until every car has a new verdict", taken, 10*time.Second)
	within("a server and a node that folds are killed together: until samples are acknowledged and verdicts stored again",
		back, 10*time.Second)
	within("then until every car has a new verdict", all, 10*time.Second)
	within("greatest age of a node's copy", m.age, time.Minute)
	s.load.Figures()
	a.Figure("states stored and followed", float64(s.follow.states), "")
	a.Figure("queries", float64(asked), "")
	a.Figure("queries, p99", float64(p99.Microseconds())/1000, "ms")
	within("the longest query, but to a node that is stopped or just woke up", wait, 2*time.Second)
	p := row.Percentile(revoked, 0.99)
	a.Aimed(fmt.Sprintf("%d revocations: refused on all three nodes, p99", len(revoked)), float64(p.Milliseconds()), "ms",
		"≤ 1 s", p <= time.Second)
	a.Figure("queries a second of eight clients, before the servers are cut off", math.Round(before.perSecond), "/s")
	a.AtLeast("queries a second without any server, to before", ratio(without.perSecond, before.perSecond), "×", 0.7)
	a.AtLeast("queries a second once they are back, to before", ratio(after.perSecond, before.perSecond), "×", 0.7)
	a.Figure("their p99 without any server, to before", ratio(float64(without.p99), float64(before.p99)), "×")
	a.AtMost("CPU of the node a query without any server, to before", ratio(float64(without.cpu), float64(before.cpu)),
		"×", 1.2)
}

// measured holds the longest durations that were measured during the disturbances.
type measured struct {
	by    map[string]*recovery // by kind of disturbance
	age   time.Duration        // of a node's copy of the states
	taken longest              // from the stop of a node that folds until every car had a new verdict
}

func newMeasured() *measured {
	m := &measured{by: make(map[string]*recovery)}
	for _, k := range kinds {
		m.by[k.name] = new(recovery)
	}
	return m
}

// recovery holds the durations of the recovery from the loss of a server.
type recovery struct {
	stall   longest // wait of a writer for an acknowledgement
	verdict longest // from the end of that wait until every car had a new verdict, in lasting disturbances
	feeds   longest // from when a node could store again until its copy was current
}

// longest is the maximum of several measured durations. If measured is false, there was none.
type longest struct {
	time.Duration
	measured bool
}

func (l *longest) take(d time.Duration) { *l = longest{max(l.Duration, d), true} }

// report compares the measurements with the promised limits.
func (m *measured) report(a *row.Attempt) {
	for _, k := range kinds {
		r := m.by[k.name]
		for _, f := range []struct {
			name  string
			took  longest
			limit time.Duration
		}{
			{"longest until writes are acknowledged again", r.stall, 10 * time.Second},
			{"then until every car has a new verdict, longest", r.verdict, 10 * time.Second},
			{"a node's copies are current again after it can store, longest", r.feeds, 7 * time.Second},
		} {
			name := fmt.Sprintf("a server %s: %s", k.name, f.name)
			switch {
			case k.name == killed:
				aimed(a, name, f.took, f.limit)
			case f.took.measured:
				a.Figure(name, seconds(f.took.Duration), "s")
			}
		}
	}
	aimed(a, "a node that folds is stopped: until every car has a new verdict, longest", m.taken, 10*time.Second)
}

// aimed reports a duration that has an aim. If it was not measured, the aim is missed.
func aimed(a *row.Attempt, name string, l longest, limit time.Duration) {
	if !l.measured {
		name += " (not measured)"
	}
	a.Aimed(name, seconds(l.Duration), "s", fmt.Sprintf("≤ %g s", limit.Seconds()), l.measured && l.Duration <= limit)
}

// seconds returns a duration in seconds, rounded to 10 ms.
func seconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Millisecond)) / float64(time.Second)
}
