package store

import (
	"context"
	"sync"
)

// workers runs a limited number of functions at a time, until one fails.
type workers struct {
	ctx    context.Context
	fail   context.CancelCauseFunc
	places chan struct{}
	busy   sync.WaitGroup
}

// The context ends at the first error.
func newWorkers(ctx context.Context, n int) (context.Context, *workers) {
	ctx, fail := context.WithCancelCause(ctx)
	return ctx, &workers{ctx: ctx, fail: fail, places: make(chan struct{}, n)}
}

func (w *workers) start(do func() error) error {
	select {
	case w.places <- struct{}{}:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	w.busy.Go(func() {
		defer func() { <-w.places }()
		if err := do(); err != nil {
			w.fail(err)
		}
	})
	return nil
}

func (w *workers) wait() error {
	w.busy.Wait()
	err := context.Cause(w.ctx)
	w.fail(nil)
	return err
}
