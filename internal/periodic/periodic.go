// Package periodic has loops and pauses that end with a context.
package periodic

import (
	"context"
	"time"
)

// Every runs the loop body after each d, above 0. Ticks during the body are dropped.
func Every(ctx context.Context, d time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		tick := time.Tick(d)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			if !yield() {
				return
			}
		}
	}
}

// NowAndEvery runs the body at once, even if ctx has ended, and then like [Every].
func NowAndEvery(ctx context.Context, d time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		if yield() {
			Every(ctx, d)(yield)
		}
	}
}

func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
