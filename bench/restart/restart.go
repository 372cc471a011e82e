// Package restart measures the start of a node whose store holds a fleet of full-size states, after
// an orderly end and after kill -9.
package restart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/test/nodeprocess"
)

type plan struct {
	sizes    []int // vehicles
	cached   int   // the size with which samples of few and of all vehicles are compared
	reported int   // samples of each measurement of reports
	steady   int   // samples at steadyRate
	rounds   int
}

func planFor(p *report.Part) plan {
	if p.Quick {
		return plan{sizes: []int{2_000}, cached: 2_000, reported: 2_000, steady: steadyRate,
			rounds: 1}
	}
	return plan{sizes: []int{100_000, 1_000_000, 3_000_000, 10_000_000}, cached: 1_000_000, reported: 500_000, steady: 20 * steadyRate, rounds: min(p.Rounds, 3)}
}

func Run(ctx context.Context, p *report.Part) error {
	m := &measurement{Part: p, plan: planFor(p), dir: filepath.Join(p.Dir, "data")}
	for _, n := range m.plan.sizes {
		if err := errors.Join(must.Caught(func() { m.size(ctx, n) }), os.RemoveAll(m.dir)); err != nil {
			return fmt.Errorf("%s vehicles: %w", report.Count(n), err)
		}
	}
	return nil
}

type measurement struct {
	*report.Part
	plan    plan
	dir     string // of the store
	sources int    // sources created so far
}

func (m *measurement) size(ctx context.Context, n int) {
	began := time.Now()
	Fill(ctx, openLocal(ctx, m.dir), n)
	live := must.Get(report.DirSize(m.dir))
	m.Logf("%s vehicles are stored in %s", report.Count(n), time.Since(began).Round(time.Second))
	m.Add(vehicles(n), "store on disk a vehicle", "B",
		"each vehicle's state once, the engine's own bytes and index included", float64(live)/float64(n))
	m.starts(ctx, n)
	m.Add(vehicles(n), "store on disk a vehicle, after these starts", "B", "", float64(must.Get(report.DirSize(m.dir)))/float64(n))
	if n == m.plan.cached {
		m.run(ctx, func(p *process) { m.cached(ctx, p, n) })
	}
}

// steadyRate is in samples per second.
const steadyRate = 8000

// The node starts after an orderly end, after kill -9 while samples arrive faster than they are
// folded, and after kill -9 at steadyRate.
func (m *measurement) starts(ctx context.Context, n int) {
	all := make(report.Rounds)
	resident := func(p *process) float64 { return float64(must.Get(p.Resident())) / 1e6 }
	for range m.plan.rounds {
		m.run(ctx, func(p *process) {
			settled(ctx, p)
			must.Do(p.Stop())
		})
		m.run(ctx, func(p *process) {
			all.Add("clean", p.ready.Seconds())
			all.Add("clean CPU", p.cpu.Seconds())
			all.Add("idle", resident(p))
			must.Do(m.cars(ctx, p).Drive(ctx, n, 0, m.plan.reported))
			all.Add("busy", resident(p))
		})
		m.run(ctx, func(p *process) {
			all.Add("killed", p.ready.Seconds())
			all.Add("killed CPU", p.cpu.Seconds())
			before := must.Get(p.CPU())
			must.Do(m.cars(ctx, p).Drive(ctx, n, steadyRate, m.plan.steady))
			all.Add("sample CPU", 1e6*(must.Get(p.CPU())-before).Seconds()/float64(m.plan.steady))
		})
		m.run(ctx, func(p *process) {
			all.Add("steady", p.ready.Seconds())
			must.Do(p.Stop())
		})
	}
	most := map[int]struct{ clean, killed, memory, sample float64 }{1_000_000: {.9, 4, 800, 26},
		10_000_000: {8, 16, 0, 0}}[n]
	for _, f := range []struct {
		most                      float64
		name, unit, remark, which string
	}{
		{most.clean, "ready, ended in order", "s", "page cache warm", "clean"},
		{most.killed, "ready, after kill -9", "s",
			"killed after half a million samples, most of which were not folded yet; page cache warm", "killed"},
		{most.memory, "resident memory when ready", "MB", "", "idle"},
		{most.memory, "resident memory under load", "MB",
			"after cars reported in turn", "busy"},
		{most.killed, "ready, after kill -9 at a steady rate", "s", fmt.Sprintf(
			"killed after %d samples at %d/s, each of another car; page cache warm", m.plan.steady, steadyRate), "steady"},
		{most.sample, "node CPU a sample at a steady rate", "µs", "in the same run", "sample CPU"},
		{0, "CPU until ready, ended in order", "s", "", "clean CPU"},
		{0, "CPU until ready, after kill -9", "s", "", "killed CPU"},
	} {
		m.AtMost(f.most, vehicles(n), f.name, f.unit, f.remark, all[f.which]...)
	}
}

func vehicles(n int) string { return report.Count(n) + " vehicles" }

// cached compares samples of few vehicles, whose states are in the processor's cache, and of all.
func (m *measurement) cached(ctx context.Context, p *process, n int) {
	drained(ctx, p)
	hot := min(n, 20_000)
	for _, c := range []struct {
		states  string
		n, warm int
		least   float64 // samples a second; 0: no aim
	}{
		{"few vehicles", hot, hot, 150_000},
		{"all vehicles", n, 0, 0},
	} {
		cars := m.cars(ctx, p)
		if c.n == n {
			cars.next.Store(int64(hot)) // after the cars that have just reported
		}
		m.folded(ctx, p, cars, c.n, c.warm)
		before := must.Get(p.Metrics(ctx))
		began := time.Now()
		m.folded(ctx, p, cars, c.n, m.plan.reported)
		took := time.Since(began)
		after := must.Get(p.Metrics(ctx))
		each := func(name string) float64 { return (after[name] - before[name]) / float64(m.plan.reported) }
		const remark = "one sample a car in turn; generator on the same machine"
		m.Add(vehicles(n), "node CPU a sample, "+c.states, "µs", remark, 1e6*each("process_cpu_seconds_total"))
		m.AtLeast(c.least, vehicles(n), "samples folded, "+c.states, "1/s", remark, float64(m.plan.reported)/took.Seconds())
	}
	must.Do(p.Stop())
}

func (m *measurement) cars(ctx context.Context, p *process) *Cars {
	m.sources++
	return &Cars{Node: p.Node, Key: must.Get(p.AddSource(ctx, fmt.Sprintf("cars%d", m.sources))), PerBody: 500}
}

func (m *measurement) folded(ctx context.Context, p *process, c *Cars, n, samples int) {
	const name = "carstate_samples_folded_total"
	before := must.Get(p.Metrics(ctx))
	must.Do(c.Drive(ctx, n, 0, samples))
	must.Get(p.AwaitMetrics(ctx, startLimit,
		func(now nodeprocess.Metrics) bool { return now[name]-before[name] >= float64(samples) }))
}

// drained waits until the backlog that an earlier process left has been empty for longer than the
// interval at which the process measures it.
func drained(ctx context.Context, p *process) {
	const looks = 2500 * time.Millisecond
	last, since := -1.0, time.Now()
	must.Get(p.AwaitMetrics(ctx, startLimit, func(m nodeprocess.Metrics) bool {
		if folded := m["carstate_samples_folded_total"]; m["carstate_backlog_seconds"] > 0 || folded != last {
			last, since = folded, time.Now()
		}
		return time.Since(since) > looks
	}))
}

// settled waits until a process has compacted its store: until it has used less than a tenth of a
// processor for two seconds.
func settled(ctx context.Context, p *process) {
	const lasting = 2 * time.Second
	for used := lasting; used > lasting/10; {
		before := must.Get(p.CPU())
		must.Do(periodic.Pause(ctx, lasting))
		used = must.Get(p.CPU()) - before
	}
}

type process struct {
	*nodeprocess.Node
	ready time.Duration // from the start of the program until it was ready
	cpu   time.Duration // CPU time used until then
}

// startLimit is far above the minute of a start with 10 million vehicles.
const startLimit = 10 * time.Minute

func (m *measurement) run(ctx context.Context, f func(*process)) {
	n := must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: m.Binary, Dir: m.dir}, startLimit))
	defer n.Kill()
	f(&process{Node: n, ready: time.Since(n.Began()), cpu: must.Get(n.CPU())})
}
