package sample

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/nodeprocess"
)

// run is one run of this part.
type run struct {
	*report.Part
	rounds  int
	lasting time.Duration // duration of one measurement
	cars    int           // number of cars of a flood
}

// node is a running carstate: the real binary with its own data directory, started with
// `carstate serve`. Every write is fsynced before it is acknowledged.
type node struct {
	*nodeprocess.Node
	key   string // of a source that may send samples of all vehicles
	token string // of a developer who may query all vehicles
}

// onNode starts a carstate with an empty data directory called name, waits until it is ready, and
// calls f. At the end it stops the node.
func (b *run) onNode(ctx context.Context, name string, flags []string, f func(*node)) {
	p := must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: b.Binary, Dir: filepath.Join(b.Dir, name),
		Flags: flags}, time.Minute))
	defer p.Kill()
	key := must.Get(p.AddSource(ctx, "bench"))
	f(&node{p, key, must.Get(p.IssueToken(ctx, "bench")).AccessToken})
	must.Do(p.Stop())
}

// since returns by how much the counter with the given name has grown from before to after.
func since(before, after nodeprocess.Metrics, name string) float64 {
	return after[name] - before[name]
}

// latencies collects durations, in milliseconds. It is safe for concurrent use.
type latencies struct {
	mu   sync.Mutex // guards took
	took []float64
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, d.Seconds()*1e3)
}

func (l *latencies) quantile(part float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return report.Quantile(l.took, part)
}

// openLoop calls f perSecond times a second for the time lasting, regardless of how long f takes. f
// receives the number of the call and the time at which it was due. If earlier calls delay a call,
// the duration that f measures from that time includes the delay. At most atOnce calls are in
// progress. If a call fails, or if the calls take over a minute longer than they should, the
// measurement ends with an error.
func openLoop(ctx context.Context, perSecond float64, atOnce int, lasting time.Duration,
	f func(i int, due time.Time)) {
	ctx, cancel := context.WithTimeout(ctx, lasting+time.Minute)
	defer cancel()
	type call struct {
		i   int
		due time.Time
	}
	calls := make(chan call, 1<<16)
	start := time.Now()
	go func() {
		defer close(calls)
		for i := 0; ; i++ {
			due := start.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
			if due.Sub(start) >= lasting {
				return
			}
			time.Sleep(time.Until(due))
			select {
			case calls <- call{i, due}:
			case <-ctx.Done():
				return
			}
		}
	}()
	together(atOnce, func(int) {
		for c := range calls {
			if err := must.Caught(func() { f(c.i, c.due) }); err != nil {
				cancel()
				must.Do(err)
			}
		}
		must.Do(ctx.Err())
	})
}

// together calls f(0) to f(n-1) in a goroutine each and waits for all. If any call has failed, the
// measurement then ends with its error.
func together(n int, f func(i int)) {
	var running sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		running.Go(func() { errs <- must.Caught(func() { f(i) }) })
	}
	running.Wait()
	close(errs)
	for err := range errs {
		must.Do(err)
	}
}
