package sample

import (
	"context"
	"errors"
	"path/filepath"
	"time"

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

// startNode starts a carstate with an empty data directory called name and waits until it
// is ready.
func startNode(ctx context.Context, o report.Options, name string, flags ...string) (*node, error) {
	p, err := nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: o.Binary, Dir: filepath.Join(o.Dir, name),
		Flags: flags}, time.Minute)
	if err != nil {
		return nil, err
	}
	key, err1 := p.AddSource(ctx, sourceName)
	token, err2 := p.IssueToken(ctx, "bench")
	if err := errors.Join(err1, err2); err != nil {
		p.Kill()
		return nil, err
	}
	return &node{p, key, token.AccessToken}, nil
}

// since returns the growth of a counter.
func since(before, after nodeprocess.Metrics, name string) float64 {
	return after[name] - before[name]
}
