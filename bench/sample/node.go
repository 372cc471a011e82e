package sample

import (
	"context"
	"path/filepath"
	"time"

	"carstate/bench/must"
	"carstate/bench/report"
	"carstate/internal/nodeprocess"
)

// node is a running carstate: the real binary with its own data directory, started with
// `carstate serve`. Every write is fsynced before it is acknowledged.
type node struct {
	*nodeprocess.Node
	key   string // of a source that may send samples of all vehicles
	token string // of a developer who may query all vehicles
}

// sourceName is the name of the node's only source.
const sourceName = "bench"

// onNode starts a carstate with an empty data directory called name, waits until it is ready, and
// calls f. At the end it stops the node.
func onNode(ctx context.Context, o report.Options, name string, flags []string, f func(*node)) {
	p := must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: o.Binary, Dir: filepath.Join(o.Dir, name),
		Flags: flags}, time.Minute))
	defer p.Kill()
	key := must.Get(p.AddSource(ctx, sourceName))
	f(&node{p, key, must.Get(p.IssueToken(ctx, "bench")).AccessToken})
	must.Do(p.Stop())
}

// since returns the growth of a counter.
func since(before, after nodeprocess.Metrics, name string) float64 {
	return after[name] - before[name]
}
