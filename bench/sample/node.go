package sample

import (
	"context"
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
func startNode(ctx context.Context, o report.Options, name string) (*node, error) {
	p, err := nodeprocess.Start(ctx, nodeprocess.Options{Binary: o.Binary, Dir: filepath.Join(o.Dir, name)})
	if err != nil {
		return nil, err
	}
	n := &node{Node: p}
	if err := n.prepare(ctx); err != nil {
		n.Kill()
		return nil, err
	}
	return n, nil
}

// prepare waits until the node is ready and gets a source and a token.
func (n *node) prepare(ctx context.Context) (err error) {
	if err := n.AwaitReady(ctx, time.Minute); err != nil {
		return err
	}
	if n.key, err = n.AddSource(ctx, sourceName); err != nil {
		return err
	}
	token, err := n.IssueToken(ctx, "bench")
	n.token = token.AccessToken
	return err
}

// since is how much a counter has grown.
func since(before, after nodeprocess.Metrics, name string) float64 {
	return after[name] - before[name]
}
