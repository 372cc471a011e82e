// Package workers runs functions with a bounded concurrency.
package workers

import (
	"context"
	"sync"
)

type Group struct {
	ctx    context.Context
	fail   context.CancelCauseFunc
	places chan struct{}
	busy   sync.WaitGroup
}

// New's context ends at the first error.
func New(ctx context.Context, n int) (context.Context, *Group) {
	ctx, fail := context.WithCancelCause(ctx)
	return ctx, &Group{ctx: ctx, fail: fail, places: make(chan struct{}, n)}
}

func (g *Group) Start(do func() error) error {
	select {
	case g.places <- struct{}{}:
	case <-g.ctx.Done():
		return context.Cause(g.ctx)
	}
	g.busy.Go(func() {
		defer func() { <-g.places }()
		if err := do(); err != nil {
			g.fail(err)
		}
	})
	return nil
}

func (g *Group) Wait() error {
	g.busy.Wait()
	err := context.Cause(g.ctx)
	g.fail(nil)
	return err
}
