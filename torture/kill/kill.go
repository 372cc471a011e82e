// Package kill ends the node with kill -9 at random moments.
package kill

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/load"
	"example.org/carstate/torture/row"
)

var Row = row.Row{
	Name: "kill", Counts: "kills under load", CI: 30,
	Run: run,
}

type torture struct {
	*row.Attempt
	rnd      *rand.Rand
	load     *load.Load
	options  nodeprocess.Options
	prepared bool
	usual    time.Duration // from start to ready
	slowest  time.Duration
	kills    [3]int
}

// recovering is under load that begins while the node recovers.
const (
	loaded = iota
	starting
	recovering
)

func run(ctx context.Context, a *row.Attempt) {
	t := &torture{
		Attempt: a, rnd: a.Rand(0), load: load.New(a), usual: 300 * time.Millisecond,
		options: nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(a.Dir, "data"),
			Flags: append(load.Flags, "--checkpoint", "300ms")}, // so that many kills meet one
	}
	for first := true; t.kills[loaded] < a.Count; first = false {
		moment := [...]int{loaded, loaded, loaded, loaded, loaded, loaded, starting, starting, recovering,
			recovering}[t.rnd.IntN(10)]
		if first {
			moment = starting // with an empty directory
		} else if !t.prepared {
			moment = loaded
		}
		t.kills[moment]++
		t.live(ctx, moment)
		must.Do(ctx.Err())
	}
	n := t.start(ctx)
	defer n.Kill()
	t.load.Hold(ctx, n, t.load.CheckAll)
	t.Figure("further kills, between start and ready", float64(t.kills[starting]), "")
	t.Figure("further kills, under load that began before it was ready", float64(t.kills[recovering]), "")
	t.Figure("ready again after a kill, slowest", t.slowest.Seconds(), "s")
	t.load.End(n)
}

func (t *torture) live(ctx context.Context, moment int) {
	switch moment {
	case starting:
		soon, cancel := context.WithTimeout(ctx, time.Duration(t.rnd.Int64N(int64(t.usual)*5/4)))
		defer cancel()
		n, err := nodeprocess.Start(soon, t.options)
		if err != nil {
			must.Do(t.load.Refused(err))
			return
		}
		<-soon.Done()
		n.Kill()
	case recovering:
		n, err := nodeprocess.Start(ctx, t.options)
		if err != nil {
			must.Do(t.load.Refused(err), err)
		}
		t.loadAndKill(ctx, n, t.usual)
	case loaded:
		n := t.start(ctx)
		defer n.Kill()
		if !t.prepared {
			t.load.Prepare(ctx, n)
			t.prepared = true
		}
		t.load.Hold(ctx, n, t.load.CheckSome)
		t.loadAndKill(ctx, n, 1200*time.Millisecond)
	}
}

func (t *torture) loadAndKill(ctx context.Context, n *nodeprocess.Node, within time.Duration) {
	var loading sync.WaitGroup
	loading.Go(func() { t.load.Run(ctx, n) })
	select {
	case <-time.After(time.Duration(t.rnd.Int64N(int64(within)))):
	case <-n.Ended():
		t.Wrong("it ended by itself: %s", n.LastLine())
	case <-ctx.Done():
	}
	n.Kill()
	loading.Wait()
}

func (t *torture) start(ctx context.Context) *nodeprocess.Node {
	n := must.Get(t.load.Start(ctx, t.options))
	t.usual = time.Since(n.Began())
	t.slowest = max(t.slowest, t.usual)
	return n
}
