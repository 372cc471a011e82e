// Package periodic provides loops that run at an interval, and pauses, until a context ends. The
// package must not know what the loops do.
package periodic

import (
	"context"
	"time"
)

// Every returns an iterator for a loop whose body runs after each interval d until ctx ends. The
// interval must be above 0. If the loop body takes longer than d, the ticks that it misses are
// dropped.
func Every(ctx context.Context, d time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if !yield() {
				return
			}
		}
	}
}

// NowAndEvery returns an iterator for a loop whose body runs immediately, even if ctx has ended,
// and then after each interval d, like [Every].
func NowAndEvery(ctx context.Context, d time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		if yield() {
			Every(ctx, d)(yield)
		}
	}
}

// Pause waits for d. If ctx ends first, it returns the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
