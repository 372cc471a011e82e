package sample

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"carstate/bench/report"
	"carstate/internal/nodeprocess"
)

// node is a running carstate: the real binary with a data directory of its own,
// as `carstate serve` starts it. Every write is fsynced before it is answered.
type node struct {
	*nodeprocess.Node
	key   string // of a source that speaks for all vehicles
	token string // that may ask for all vehicles
}

// sourceName is the one source of a node.
const sourceName = "bench"

// startNode starts a carstate with an empty data directory called name, and waits
// until it is ready.
func startNode(ctx context.Context, o report.Options, name string, flags ...string) (*node, error) {
	p, err := nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: o.Binary, Dir: filepath.Join(o.Dir, name), Flags: flags}, time.Minute)
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

// since is how much a counter has grown.
func since(before, after nodeprocess.Metrics, name string) float64 {
	return after[name] - before[name]
}
