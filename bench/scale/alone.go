package scale

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/restart"
	"example.org/carstate/internal/nodeprocess"
)

// alone measures one machine that has its own store. The load is that of a fleet whose cars report
// every ten seconds, with a hundred cars per request.
func (b *bench) alone(ctx context.Context) {
	n := must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: b.Binary, Dir: filepath.Join(b.Dir, "alone")},
		startLimit))
	defer n.Kill()
	cars := restart.Cars{Node: n, PerBody: perBody}
	cars.Key = must.Get(n.AddSource(ctx, "gateway"))
	rate := float64(b.plan.alone) / reportEvery.Seconds()
	drive := func(lasting time.Duration) {
		must.Do(cars.Drive(ctx, b.plan.alone, rate, int(rate*lasting.Seconds())))
		want := float64(cars.Sent.Load())
		must.Get(n.AwaitMetrics(ctx, startLimit,
			func(m nodeprocess.Metrics) bool { return m["carstate_samples_folded_total"] >= want }))
	}
	drive(reportEvery) // the first report of each car
	cpu, written := must.Get(n.CPU()), writtenBy(n.PID())
	began, before := time.Now(), cars.Sent.Load()
	done := make(chan error, 1)
	go func() { done <- must.Caught(func() { drive(b.plan.steady) }) }()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	most := int64(0)
	for driving := true; driving; {
		select {
		case err := <-done:
			must.Do(err)
			driving = false
		case <-look.C:
		}
		most = max(most, must.Get(n.Resident()))
	}
	took, samples := time.Since(began).Seconds(), float64(cars.Sent.Load()-before)
	const subject = "one machine"
	used := (must.Get(n.CPU()) - cpu).Seconds()
	b.Add(subject, "cars", "", "on the store of one machine, one partition", float64(b.plan.alone))
	b.Add(subject, "samples a second", "1/s", fmt.Sprintf("HTTP, %d cars a request", perBody), samples/took)
	b.Add(subject, "CPU of all a sample", "µs", "all states cached", micros(used, samples))
	b.Add(subject, "cores in use", "", "without queries", used/took)
	b.Add(subject, "resident memory at most", "MB", "", float64(most)/1e6)
	b.Add(subject, "written a sample", "B", "by the kernel's count, compaction included",
		float64(writtenBy(n.PID())-written)/samples)
}
