// Package overload is a row (one test) of the torture. It sends the service far more queries and
// samples than it can handle, and checks that the service keeps answering at the rate that it can
// handle.
package overload

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/torture/cores"
	"carstate/torture/defects"
	"carstate/torture/load"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is row 5 of the torture: ten times as many requests as a node can handle.
var Row = row.Row{
	Number: 5, Name: "overload", Title: "Ten times as much as it can do", Text: prose,
	Counts: "seconds at each rate", CI: 9, Long: 60,
	Controls: defects.Controls("overload", "acknowledge-early", "no-shedding"),
	Needs:    needs,
	Run:      run,
}

// Quotas of the node under test, in thousandths of a core.
const (
	queryQuota  = 80
	ingestQuota = 400
)

func run(ctx context.Context, a *row.Attempt) {
	p := cores.Split(os.Getpid())
	// This process simulates all users. The process ends with the row, so it need not restore
	// its set of processors.
	cores.Confine(os.Getpid(), &p.Others)
	killed, whole := newFleet(a), newFleet(a)
	// Telemetry is overloaded before queries. Without load shedding, telemetry suffers more
	// than queries, so this order ends the control of that defect earlier.
	for _, part := range []struct {
		what        string
		thousandths int
		prepare     func(context.Context, *nodeprocess.Node) *users
		do          func(context.Context, *node)
	}{
		{"killed", ingestQuota, killed.prepare, killed.cut},
		{"ingest", ingestQuota, whole.prepare, func(ctx context.Context, n *node) {
			n.measure(ctx)
			whole.hold(ctx, n)
		}},
		{"query", queryQuota, queries, func(ctx context.Context, n *node) { n.measure(ctx) }},
	} {
		one(ctx, a, part.what, part.thousandths, &p.One, part.prepare, part.do)
		must.Do(ctx.Err())
	}
}

// one starts a new node, and overloads one of its listeners.
func one(ctx context.Context, a *row.Attempt, what string, thousandths int, processor *cores.Set,
	prepare func(context.Context, *nodeprocess.Node) *users, do func(context.Context, *node)) {
	options := nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(a.Dir, what), Flags: load.Flags}
	q := must.Get(newQuota(fmt.Sprintf("carstate-torture-%s-%d", what, os.Getpid()), thousandths))
	defer func() { must.Do(q.remove()) }()
	n := &node{a: a, process: must.Get(nodeprocess.Start(ctx, options)), what: what, quota: q, processor: processor,
		options: options}
	defer func() { n.process.Kill() }() // by then it may be another one
	must.Do(n.process.AwaitReady(ctx, time.Minute))
	n.users = prepare(ctx, n.process)
	n.confine()
	do(ctx, n)
}

// node is the node under test, which is overloaded.
type node struct {
	a       *row.Attempt
	process *nodeprocess.Node
	what    string
	users   *users
	quota   *quota

	processor *cores.Set
	options   nodeprocess.Options // the node was started with them
}

// confine limits a running node to its quota and its processor.
func (n *node) confine() {
	if err := n.quota.add(n.process.PID()); err != nil {
		must.Fail("the node cannot be limited: %w", err)
	}
	cores.Confine(n.process.PID(), n.processor)
}

// Durations of the phases.
const (
	settleTime   = 2500 * time.Millisecond // of a closed loop, before its results count
	closedTime   = 2 * time.Second
	calmTime     = 3 * time.Second
	warmTime     = 1500 * time.Millisecond // of an open loop, before its results count
	overloadTime = 2500 * time.Millisecond // warmTime in an overload, in which thousands of users connect at first
	growTime     = 5 * time.Second         // of a loop without results, which lets the node's memory grow
	watched      = 4 * time.Second         // observation after an overload
)

// rounds is the number of measurements of each rate. Other load on the machine changes within
// seconds, so each round measures all rates in turn, and the result of a rate is the median of its
// rounds.
const rounds = 3

// bearable are the rates of requests, relative to the node's measured capacity, that do not
// overload the node. The highest answer rate measured at these rates is called the peak.
var bearable = []float64{0.7, 0.85, 1, 1.2}

// overloads are rates of requests that overload the node. A factor is the rate
// relative to the node's measured capacity. The field least is the minimum answer
// rate in percent of the peak (see bearable).
var overloads = []struct{ factor, least float64 }{{2, 90}, {10, 80}}

// The promised limits.
const (
	recoverWithin = 2   // s
	maxResident   = 256 // MiB
)

func (n *node) measure(ctx context.Context) {
	calm := n.users.openLoop(ctx, calmRate, 0, calmTime)
	n.users.disconnectAll()
	normal := max(3*calm.p(0.99), 100*time.Millisecond)
	n.a.Figure(n.what+": p99 of a light load before", ms(calm.p(0.99)), "ms")
	if calm.good != calm.due {
		must.Fail("%s: not all requests of a light load were answered: %d of %d, %w", n.what, calm.good, calm.due,
			calm.wrong)
	}
	if calm.p(0.99) > tooBusy {
		must.Fail("%s: a light load had a p99 of %s: the machine is too busy to measure anything", n.what,
			calm.p(0.99))
	}
	// The memory of a node that has just started grows for a while.
	n.users.openLoop(ctx, 2*n.closed(ctx, closedUsers[0]), 0, growTime)
	n.users.disconnectAll()
	about := 0.0
	for _, users := range closedUsers {
		rate := n.closed(ctx, users)
		n.a.Figure(fmt.Sprintf("%s: answers to %d users who wait for them", n.what, users), rate, "/s")
		about = max(about, rate)
	}
	must.Do(ctx.Err())
	if about == 0 {
		must.Fail("%s: no request was answered", n.what)
	}
	capacity := 0.0
	for _, part := range []float64{0.4, 0.55, 0.7, 0.85, 1} {
		capacity = max(capacity, n.offer(ctx, part*about, warmTime, calmTime/2).rate())
	}
	n.curve(ctx, capacity, normal)
}

// closedUsers are the numbers of users in the closed loops. In a closed loop, each user sends the
// next request when the previous one is answered.
var closedUsers = []int{1000, 128}

// closed returns the answer rate of a closed loop with the given number of users.
func (n *node) closed(ctx context.Context, users int) float64 {
	r := n.users.closedLoop(ctx, users, settleTime, closedTime)
	n.check(fmt.Sprintf("%s, %d users: ", n.what, users), r)
	return float64(r.good) / closedTime.Seconds()
}

// tooBusy is a limit for the 99th percentile of the delays under a light load. If that percentile
// is greater, the machine is too busy to measure anything.
const tooBusy = 250 * time.Millisecond

// calmRate is the rate of the light load, in requests per second.
const calmRate = 100

// measured is the result of the requests of one measurement, with their cost.
type measured struct {
	result
	during time.Duration
	cpu    time.Duration // CPU time of the node
	users  int
}

func (m measured) rate() float64 { return float64(m.good) / m.during.Seconds() }

func (m measured) offers() float64 { return float64(m.sent()) / m.during.Seconds() }

// part returns the fraction of the node's quota that the node used.
func (m measured) part(q *quota) float64 { return m.cpu.Seconds() / m.during.Seconds() / q.cores }

// cost returns the node's CPU time per good answer in seconds, including its other work.
func (m measured) cost() float64 { return m.cpu.Seconds() / float64(max(1, m.good)) }

// offer sends requests at a rate in an open loop. It reads the node's CPU time when the measured
// phase begins and ends.
func (n *node) offer(ctx context.Context, rate float64, warm, during time.Duration) measured {
	var spent [2]time.Duration
	var errs [2]error
	i := 0
	n.users.counting = func() {
		spent[i], errs[i] = n.process.CPU()
		i++
	}
	m := measured{result: n.users.openLoop(ctx, rate, warm, during), during: during, users: n.users.connections()}
	m.cpu = spent[1] - spent[0]
	n.users.counting = nil
	n.users.disconnectAll()
	n.check(fmt.Sprintf("%s, %.0f/s: ", n.what, rate), m.result)
	must.Do(errs[0], errs[1], ctx.Err())
	return m
}

// point holds the measurements at one rate, one for each round.
type point struct {
	factor    float64
	over      bool // the rate overloads the node
	rounds    []measured
	recovered time.Duration // time until the recovery after the last round
}

// median returns the median of a value over the rounds.
func (p *point) median(of func(measured) float64) float64 {
	all := make([]float64, len(p.rounds))
	for i, m := range p.rounds {
		all[i] = of(m)
	}
	return row.Percentile(all, 0.5)
}

// curve measures the answer rate at each offered rate.
func (n *node) curve(ctx context.Context, capacity float64, normal time.Duration) {
	peaks := row.Watch(ctx, n.process)
	defer peaks()
	points := make([]point, 0, len(bearable)+len(overloads))
	for _, f := range bearable {
		points = append(points, point{factor: f})
	}
	for _, o := range overloads {
		points = append(points, point{factor: o.factor, over: true})
	}
	during := time.Duration(n.a.Count) * time.Second / rounds
	for i := range rounds {
		for j := range points {
			p := &points[j]
			warm := warmTime
			if p.over {
				warm = overloadTime
			}
			m := n.offer(ctx, p.factor*capacity, warm, during)
			p.rounds = append(p.rounds, m)
			n.a.Offered(m.sent())
			n.a.Acknowledged(m.good)
			n.a.Logf("%s at %g×, round %d: %.0f/s answered in time of %.0f/s, %.1f µs of CPU each, %.0f %% of the quota", n.what,
				p.factor, i+1,
				m.rate(), m.offers(), 1e6*m.cost(), 100*m.part(n.quota))
			if i == rounds-1 && p.over {
				var light result
				p.recovered, light = n.recovery(ctx, normal)
				n.check(fmt.Sprintf("%s after %g×: ", n.what, p.factor), light)
			}
		}
	}
	_, most := peaks()
	must.Do(ctx.Err())
	n.report(points, most)
}

func (n *node) report(points []point, resident int64) {
	var peak *point
	for i := range bearable {
		p := &points[i]
		n.a.Figure(fmt.Sprintf("%s at %g×: offered", n.what, p.factor), p.median(measured.offers), "/s")
		n.a.Figure(fmt.Sprintf("%s at %g×: answered in time", n.what, p.factor), p.median(measured.rate), "/s")
		if peak == nil || p.median(measured.rate) > peak.median(measured.rate) {
			peak = p
		}
	}
	best := peak.median(measured.rate)
	n.a.Figure(n.what+": peak", best, "/s")
	for i, o := range overloads {
		p := &points[len(bearable)+i]
		var all result
		users := 0
		for _, m := range p.rounds {
			all.add(m.result)
			users = max(users, m.users)
		}
		name, seconds := fmt.Sprintf("%s at %g×: ", n.what, o.factor), float64(n.a.Count)
		n.a.Figure(name+"offered", p.median(measured.offers), "/s")
		n.a.AtLeast(name+"offered, of what was due", 100*float64(all.sent())/float64(max(1, all.due)), "%", 90)
		n.a.Figure(name+"answered in time", p.median(measured.rate), "/s")
		n.a.AtLeast(name+"answered in time, of the peak", 100*p.median(measured.rate)/best, "%", o.least)
		n.a.Figure(name+"CPU of an answer, of that at the peak", 100*p.median(measured.cost)/peak.median(measured.cost), "%")
		n.a.Figure(name+"CPU used, of the quota", 100*p.median(func(m measured) float64 { return m.part(n.quota) }), "%")
		n.a.Figure(name+"connections made", float64(all.connected)/seconds, "/s")
		n.a.Aimed(name+"refused with 503", float64(all.refused)/seconds, "/s", "> 0 /s", all.refused > 0)
		n.a.Figure(name+"without an answer in 1 s", float64(all.failed)/seconds, "/s")
		n.a.Figure(name+"dropped by the kernel", float64(all.dropped)/seconds, "/s")
		n.a.Figure(name+"users", float64(users), "")
		n.a.Figure(name+"p50 of what was answered", ms(all.p(0.5)), "ms")
		n.a.Figure(name+"p99 of what was answered", ms(all.p(0.99)), "ms")
		n.a.AtMost(name+"recovered after", p.recovered.Seconds(), "s", recoverWithin)
	}
	n.a.AtMost(n.what+": resident memory at most", float64(resident)/(1<<20), "MiB", maxResident)
}

// check reports an answer that was wrong.
func (n *node) check(name string, r result) {
	if r.wrong != nil {
		n.a.Wrong("%s%v", name, r.wrong)
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// recovery returns how long the node took to recover after an overload, and the result of the light
// load with which this was measured.
func (n *node) recovery(ctx context.Context, normal time.Duration) (time.Duration, result) {
	light := &users{addr: n.users.addr, request: n.users.request, good: n.users.good, light: true,
		acknowledged: n.users.acknowledged, sent: n.users.sent}
	began := time.Now()
	r := light.openLoop(ctx, calmRate, 0, watched)
	light.disconnectAll()
	n.users.sent = light.sent
	return recovered(r.all, began, normal), r
}

// recovered returns the time from began until the end of the last bad request. A request that
// failed is bad. A slow request, which took longer than the parameter normal, is bad only if others
// were slow, too: of the requests that were due in the second that begins with this request, at
// least two (itself included) and at least a hundredth were slow.
func recovered(all []outcome, began time.Time, normal time.Duration) (after time.Duration) {
	slices.SortFunc(all, func(a, b outcome) int { return a.due.Compare(b.due) })
	for i, f := range all {
		slow, asked := 0, 0
		for _, g := range all[i:] {
			if g.due.Sub(f.due) >= time.Second {
				break
			}
			asked++
			if g.took > normal {
				slow++
			}
		}
		if !f.good || f.took > normal && slow >= max(2, asked/100) {
			after = max(after, f.due.Sub(began)+f.took)
		}
	}
	return after
}
