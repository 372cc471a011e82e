package scale

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"carstate/bench/restart"
	"carstate/internal/nodeprocess"
)

// alone measures one machine that has its own store. The load is that of a fleet whose cars report
// every ten seconds, with a hundred cars per request.
func (b *bench) alone(ctx context.Context) (err error) {
	n, err := nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: b.Binary, Dir: filepath.Join(b.Dir, "alone")},
		startLimit)
	if err != nil {
		return err
	}
	defer n.Kill()
	cars := restart.Cars{Node: n, PerBody: perBody}
	if cars.Key, err = n.AddSource(ctx, "gateway"); err != nil {
		return err
	}
	rate := float64(b.plan.alone) / reportEvery.Seconds()
	drive := func(lasting time.Duration) error {
		if err := cars.Drive(ctx, b.plan.alone, rate, int(rate*lasting.Seconds())); err != nil {
			return err
		}
		want := float64(cars.Sent.Load())
		_, err := n.AwaitMetrics(ctx, startLimit,
			func(m nodeprocess.Metrics) bool { return m["carstate_samples_folded_total"] >= want })
		return err
	}
	if err := drive(reportEvery); err != nil { // the first report of each car
		return err
	}
	cpu, err1 := n.CPU()
	written, err2 := writtenBy(n.PID())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	began, before := time.Now(), cars.Sent.Load()
	done := make(chan error, 1)
	go func() { done <- drive(b.plan.steady) }()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	most := int64(0)
	for driving := true; driving; {
		select {
		case err = <-done:
			driving = false
		case <-look.C:
		}
		resident, failed := n.Resident()
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		most = max(most, resident)
	}
	took, samples := time.Since(began).Seconds(), float64(cars.Sent.Load()-before)
	cpu2, err1 := n.CPU()
	written2, err2 := writtenBy(n.PID())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	const subject = "one machine"
	used := (cpu2 - cpu).Seconds()
	b.figure(subject, "cars", float64(b.plan.alone), "", "on the store of one machine, one partition")
	b.figure(subject, "samples a second", samples/took, "1/s", fmt.Sprintf("HTTP, %d cars a request", perBody))
	b.figure(subject, "CPU of all a sample", micros(used, samples), "µs", "all states cached")
	b.figure(subject, "cores in use", used/took, "", "without queries")
	b.figure(subject, "resident memory at most", float64(most)/1e6, "MB", "")
	b.figure(subject, "written a sample", float64(written2-written)/samples, "B",
		"by the kernel's count, compaction included")
	return nil
}
