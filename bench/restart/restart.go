// Package restart measures the start of a node whose store holds a fleet of full-size states, after
// an orderly end and after kill -9.
package restart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/nodeprocess"
)

type plan struct {
	few, all []int // vehicles with position and plate, and with all signals
	reported int   // samples of each measurement of reports
	steady   int   // samples at steadyRate
	rounds   int
}

func planFor(p *report.Part) plan {
	if p.Quick {
		return plan{few: []int{2_000}, all: []int{2_000}, reported: 2_000, steady: steadyRate, rounds: 1}
	}
	return plan{few: []int{1_000_000, 10_000_000}, all: []int{100_000, 1_000_000, 3_000_000}, reported: 500_000,
		steady: 20 * steadyRate, rounds: min(p.Rounds, 3)}
}

func Run(ctx context.Context, p *report.Part) error {
	m := &measurement{Part: p, plan: planFor(p), dir: filepath.Join(p.Dir, "data")}
	for i, n := range slices.Concat(m.plan.few, m.plan.all) {
		subject, signals := vehicles(n)+", position and plate", positionAndPlate
		if i >= len(m.plan.few) {
			subject, signals = vehicles(n)+", all signals", AllSignals
		}
		err := must.Caught(func() { m.size(ctx, subject, n, signals) })
		if err := errors.Join(err, os.RemoveAll(m.dir)); err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
	}
	return nil
}

type measurement struct {
	*report.Part
	plan      plan
	dir       string // of the store
	sources   int    // sources created so far
	positions bool   // cars report positions
}

func (m *measurement) size(ctx context.Context, subject string, n int, signals []signal.Signal) {
	began := time.Now()
	m.positions = slices.Contains(signals, signal.CurrentLatitude)
	Fill(ctx, openLocal(ctx, m.dir), n, signals)
	live := must.Get(report.DirSize(m.dir))
	m.Logf("%s are stored in %s", subject, time.Since(began).Round(time.Second))
	m.Add(subject, "store on disk a vehicle", "B",
		"each vehicle's state once, the engine's own bytes and index included", float64(live)/float64(n))
	m.starts(ctx, subject, n)
	m.Add(subject, "store on disk a vehicle, after these starts", "B", "", float64(must.Get(report.DirSize(m.dir)))/float64(n))
}

// steadyRate is in samples per second.
const steadyRate = 8000

// The node starts after an orderly end, after kill -9 while samples arrive faster than they are
// folded, and after kill -9 at steadyRate.
func (m *measurement) starts(ctx context.Context, subject string, n int) {
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
			settled(ctx, p)
			before := must.Get(p.CPU())
			must.Do(m.cars(ctx, p).Drive(ctx, n, steadyRate, m.plan.steady))
			all.Add("sample CPU", 1e6*(must.Get(p.CPU())-before).Seconds()/float64(m.plan.steady))
			must.Do(m.cars(ctx, p).Drive(ctx, n, 0, m.plan.reported))
			all.Add("busy", resident(p))
		})
		m.run(ctx, func(p *process) {
			all.Add("killed", p.ready.Seconds())
			all.Add("killed CPU", p.cpu.Seconds())
			must.Do(m.cars(ctx, p).Drive(ctx, n, steadyRate, m.plan.steady))
		})
		m.run(ctx, func(p *process) {
			all.Add("steady", p.ready.Seconds())
			must.Do(p.Stop())
		})
	}
	most := map[string]struct{ clean, killed, memory, sample float64 }{
		"1 M vehicles, position and plate": {.9, 4, 500, 26}, "1 M vehicles, all signals": {.9, 4, 800, 0},
		"10 M vehicles, position and plate": {8, 16, 0, 0},
	}[subject]
	for _, f := range []struct {
		most                      float64
		name, unit, remark, which string
	}{
		{most.clean, "ready, ended in order", "s", "page cache warm", "clean"},
		{most.killed, "ready, after kill -9", "s",
			"killed after half a million samples, most of which were not folded yet; page cache warm", "killed"},
		{most.memory, "resident memory when ready", "MB", "", "idle"},
		{most.memory, "resident memory under load", "MB", "after cars reported in turn", "busy"},
		{most.killed, "ready, after kill -9 at a steady rate", "s", fmt.Sprintf(
			"killed after %d samples at %d/s, each of another car; page cache warm", m.plan.steady, steadyRate), "steady"},
		{most.sample, "node CPU a sample at a steady rate", "µs", "before the flood", "sample CPU"},
		{0, "CPU until ready, ended in order", "s", "", "clean CPU"},
		{0, "CPU until ready, after kill -9", "s", "", "killed CPU"},
	} {
		m.AtMost(f.most, subject, f.name, f.unit, f.remark, all[f.which]...)
	}
}

func vehicles(n int) string { return report.Count(n) + " vehicles" }

func (m *measurement) cars(ctx context.Context, p *process) *Cars {
	m.sources++
	return &Cars{Nodes: []*nodeprocess.Node{p.Node}, Key: must.Get(p.AddSource(ctx, fmt.Sprintf("cars%d", m.sources))),
		PerBody: 100, Positions: m.positions}
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
