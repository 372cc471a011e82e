// Package soak is a row (one test) of the torture that runs for a long time. It applies a steady
// load of all kinds, and observes memory, goroutines, descriptors and the size of the store.
package soak

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"carstate/bench/must"
	"carstate/bench/report"
	"carstate/internal/nodeprocess"
	"carstate/torture/defects"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is row 12 of the torture: a long run of mixed traffic, during which the node must not grow.
var Row = row.Row{
	Number: 12, Name: "soak", Title: "For a day", Text: prose,
	Counts: "minutes", CI: 1, Long: 1440, FlagOnly: true,
	Controls: defects.Controls("soak", "leak"),
	Run:      run,
}

const sampleEvery = 2 * time.Second

func run(ctx context.Context, a *row.Attempt) {
	// The samples that the journal sends to settle are about a day old, and after a day's run about two.
	n := must.Get(a.Start(ctx, "--retention", "1m", "--max-age", "87600h"))
	defer n.Kill()
	t := newTraffic(ctx, a, n)
	during := time.Duration(a.Count) * time.Minute
	running, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- t.run(running)
	}()
	s := watch(running, n)
	cancel()
	must.Do(<-ended)
	s.report(a)
	t.holdAll(ctx)
}

// series holds the measurements of each quantity over time.
type series struct {
	at []float64 // hours since the beginning
	of map[string][]float64
}

// limits are the limits of each measured quantity, in its unit. The field floor is the growth over
// the second half of the run that chance can cause. The field most is the maximum of the quantity;
// 0 means that it has none.
var limits = []struct {
	name, unit string
	floor      float64
	most       float64
}{
	{"resident memory", "MiB", 16, 512},
	{"goroutines", "", 10, 0},
	{"descriptors", "", 10, 0},
	{"store", "MiB", 32, 256},
}

// anHour is the growth per hour that is allowed in addition to the floor (see limits), as a
// fraction of the quantity's median.
const anHour = 0.01

// watch measures each quantity (see limits) every sampleEvery, until ctx ends.
func watch(ctx context.Context, n *nodeprocess.Node) *series {
	s := &series{of: make(map[string][]float64)}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return s
		case <-n.Ended():
			must.Fail("the node ended:\n%s", n.Log())
		case <-tick.C:
		}
		m, err := n.Metrics(ctx)
		if ctx.Err() != nil {
			return s
		}
		must.Do(err)
		s.at = append(s.at, time.Since(began).Hours())
		for name, v := range map[string]float64{
			"resident memory": float64(must.Get(n.Resident())) / (1 << 20), "goroutines": m["go_goroutines"],
			"descriptors": m["process_open_fds"], "store": float64(must.Get(report.DirSize(n.Dir))) / (1 << 20),
		} {
			s.of[name] = append(s.of[name], v)
		}
	}
}

func (s *series) report(a *row.Attempt) {
	half := len(s.at) / 2
	if len(s.at)-half < 5 {
		a.Wrong("there were only %d measurements", len(s.at))
		return
	}
	hours := s.at[len(s.at)-1] - s.at[half]
	for _, l := range limits {
		values := s.of[l.name][half:]
		middle, most := report.Median(values), slices.Max(values)
		grown := report.Slope(s.at[half:], values) * hours
		allowed := l.floor + anHour*middle*hours
		a.Figure(l.name+", median of the second half", middle, l.unit)
		a.Aimed(l.name+": trend over the second half", grown, l.unit, fmt.Sprintf("≤ %.1f %s", allowed, l.unit),
			grown <= allowed)
		if l.most > 0 {
			a.AtMost(l.name+" at most", most, l.unit, l.most)
		}
	}
}
