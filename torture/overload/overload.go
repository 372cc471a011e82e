// Package overload is the row that sends far more than a node can handle.
package overload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/load"
	"example.org/carstate/torture/row"
)

var Row = row.Row{
	Name: "overload", Counts: "seconds at each rate", CI: 9,
	Run: run,
}

// Thousandths of a core.
const (
	queryQuota  = 80
	ingestQuota = 400
)

func run(ctx context.Context, a *row.Attempt) {
	p := row.Split(os.Getpid())
	row.Confine(os.Getpid(), &p.Others)
	begin := time.Now().Add(-time.Hour).Unix()
	killed, whole := &fleet{load: load.New(a), begin: begin}, &fleet{load: load.New(a), begin: begin}
	// Telemetry suffers more without load shedding, so its control ends earlier.
	for _, n := range []*node{
		{what: "killed", thousandths: ingestQuota, prepare: killed.prepare, do: killed.cut},
		{what: "ingest", thousandths: ingestQuota, prepare: whole.prepare, do: func(ctx context.Context, n *node) {
			n.measure(ctx)
			vids := whole.load.Vehicles()
			a.Figure("ingest: cars whose newest acknowledged sample was looked for", float64(len(vids)), "")
			whole.load.HoldVehicles(ctx, n.process, vids)
		}},
		{what: "query", thousandths: queryQuota, prepare: queries, do: func(ctx context.Context, n *node) { n.measure(ctx) }},
	} {
		n.a, n.processor = a, &p.One
		n.run(ctx)
		must.Do(ctx.Err())
	}
}

type node struct {
	what        string
	thousandths int
	prepare     func(context.Context, *nodeprocess.Node) *users
	do          func(context.Context, *node)

	a         *row.Attempt
	options   nodeprocess.Options
	process   *nodeprocess.Node
	users     *users
	quota     string // directory
	processor *row.Processors
}

func (n *node) run(ctx context.Context) {
	n.options = nodeprocess.Options{Binary: n.a.Binary, Dir: filepath.Join(n.a.Dir, n.what), Flags: load.Flags}
	n.quota = must.Get(newQuota(fmt.Sprintf("carstate-torture-%s-%d", n.what, os.Getpid()), n.thousandths))
	defer func() { must.Do(os.Remove(n.quota)) }()
	n.process = must.Get(nodeprocess.StartReady(ctx, n.options, time.Minute))
	defer func() { n.process.Kill() }() // by then it may be another process
	n.users = n.prepare(ctx, n.process)
	n.confine()
	n.do(ctx, n)
}

func (n *node) confine() {
	must.Do(os.WriteFile(filepath.Join(n.quota, "cgroup.procs"), []byte(strconv.Itoa(n.process.PID())), 0o644))
	row.Confine(n.process.PID(), n.processor)
}

// Otherwise the machine is too busy to measure anything.
const (
	calmRate = 100
	tooBusy  = 250 * time.Millisecond
)

const (
	settleTime   = 2500 * time.Millisecond // before its results count
	closedTime   = 2 * time.Second
	calmTime     = 3 * time.Second
	warmTime     = 1500 * time.Millisecond
	overloadTime = 2500 * time.Millisecond // thousands connect at first
	growTime     = 5 * time.Second
	watched      = 4 * time.Second
)

// Other load changes within seconds. The median counts.
const rounds = 3

// Relative to the measured capacity. least is in percent of the peak, the best rate without it.
var rates = []struct{ factor, least float64 }{{0.7, 0}, {0.85, 0}, {1, 0}, {1.2, 0}, {2, 90}, {10, 80}}

const (
	recoverWithin = 2   // s
	maxResident   = 256 // MiB
)

func (n *node) measure(ctx context.Context) {
	calm := n.users.openLoop(ctx, calmRate, 0, calmTime)
	normal := max(3*calm.p(0.99), 100*time.Millisecond)
	n.a.Figure(n.what+": p99 of a light load before", row.Millis(calm.p(0.99)), "ms")
	if calm.good != calm.due || calm.p(0.99) > tooBusy {
		must.Fail("%s: of a light load, %d of %d requests were answered, with a p99 of %s: the machine is too busy to "+
			"measure anything, %w", n.what, calm.good, calm.due, calm.p(0.99), calm.wrong)
	}
	// A new node's memory grows for a while.
	n.users.openLoop(ctx, 2*n.closed(ctx, closedUsers[0]), 0, growTime)
	about := 0.0
	for _, users := range closedUsers {
		about = max(about, n.closed(ctx, users))
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

var closedUsers = []int{1000, 128}

func (n *node) closed(ctx context.Context, users int) float64 {
	r := n.users.closedLoop(ctx, users, settleTime, closedTime, func() {})
	n.check(fmt.Sprintf("%s, %d users: ", n.what, users), r)
	return r.rate()
}

func (n *node) offer(ctx context.Context, rate float64, warm, during time.Duration) result {
	r := n.users.openLoop(ctx, rate, warm, during)
	n.check(fmt.Sprintf("%s, %.0f/s: ", n.what, rate), r)
	must.Do(ctx.Err())
	return r
}

type point struct {
	rounds    []result
	recovered time.Duration
}

func (p *point) median(of func(result) float64) float64 {
	var all []float64
	for _, r := range p.rounds {
		all = append(all, of(r))
	}
	return report.Quantile(all, 0.5)
}

func (p *point) sum(of func(result) int) (n float64) {
	for _, r := range p.rounds {
		n += float64(of(r))
	}
	return n
}

func (n *node) curve(ctx context.Context, capacity float64, normal time.Duration) {
	peaks := row.Watch(ctx, n.process)
	defer peaks()
	points := make([]point, len(rates))
	during := time.Duration(n.a.Count) * time.Second / rounds
	for i := range rounds {
		for j, rate := range rates {
			p, warm := &points[j], warmTime
			if rate.least > 0 {
				warm = overloadTime
			}
			r := n.offer(ctx, rate.factor*capacity, warm, during)
			p.rounds = append(p.rounds, r)
			n.a.Offered(r.sent())
			n.a.Acknowledged(r.good)
			n.a.Logf("%s at %g×, round %d: %.0f/s answered in time of %.0f/s", n.what, rate.factor, i+1, r.rate(), r.offers())
			if i == rounds-1 && rate.least > 0 {
				began := time.Now()
				r := n.users.openLoop(ctx, calmRate, 0, watched)
				p.recovered = recovered(r.all, began, normal)
				n.check(fmt.Sprintf("%s after %g×: ", n.what, rate.factor), r)
			}
		}
	}
	_, most := peaks()
	must.Do(ctx.Err())
	n.report(points, most)
}

func (n *node) report(points []point, resident int64) {
	peak := &points[0]
	for i, rate := range rates {
		p, name := &points[i], fmt.Sprintf("%s at %g×: ", n.what, rate.factor)
		n.a.Figure(name+"offered", p.median(result.offers), "/s")
		n.a.Figure(name+"answered in time", p.median(result.rate), "/s")
		if rate.least == 0 {
			if p.median(result.rate) > peak.median(result.rate) {
				peak = p
			}
			continue
		}
		seconds := float64(n.a.Count)
		n.a.AtLeast(name+"offered, of what was due",
			100*p.sum(result.sent)/max(1, p.sum(func(r result) int { return r.due })), "%", 90)
		n.a.AtLeast(name+"answered in time, of the peak", 100*p.median(result.rate)/peak.median(result.rate), "%",
			rate.least)
		refused := p.sum(func(r result) int { return r.refused }) / seconds
		n.a.Aimed(name+"refused with 503", refused, "/s", "> 0 /s", refused > 0)
		n.a.Figure(name+"without an answer in 1 s", p.sum(func(r result) int { return r.failed })/seconds, "/s")
		n.a.Figure(name+"p99 of what was answered", p.median(func(r result) float64 { return row.Millis(r.p(0.99)) }), "ms")
		n.a.AtMost(name+"recovered after", p.recovered.Seconds(), "s", recoverWithin)
	}
	n.a.Figure(n.what+": peak", peak.median(result.rate), "/s")
	n.a.AtMost(n.what+": resident memory at most", float64(resident)/(1<<20), "MiB", maxResident)
}

func (n *node) check(name string, r result) {
	if r.wrong != nil {
		n.a.Wrong("%s%v", name, r.wrong)
	}
}

// A bad request failed, or was slow if others were, too.
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

// In µs. The kernel notices up to 4 ms late that the time is used up, and deducts the excess from
// the next period, which must be much longer.
const period = 100_000

func newQuota(name string, thousandths int) (dir string, err error) {
	allowed, every := strconv.Itoa(period*thousandths/1000), strconv.Itoa(period)
	root, limits := "/sys/fs/cgroup", map[string]string{"cpu.max": allowed + " " + every}
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil { // version 1 of control groups
		root, limits = root+"/cpu", map[string]string{"cpu.cfs_period_us": every, "cpu.cfs_quota_us": allowed}
	}
	// In version 2, the parent must enable a controller.
	_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0o644)
	dir = filepath.Join(root, name)
	err = os.Mkdir(dir, 0o755)
	for file, text := range limits {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
		}
	}
	if err != nil {
		_ = os.Remove(dir)
		return "", fmt.Errorf("the CPU time of a process cannot be limited: run it as root, with a writable "+
			"/sys/fs/cgroup that has a controller of the CPU: %w", err)
	}
	return dir, nil
}
