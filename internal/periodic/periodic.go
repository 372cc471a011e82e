// Package periodic is what is done again and again until a context ends. It must not
// know what that is.
package periodic

import (
	"context"
	"time"
)

// Every yields each time after d, until the context ends. What is late is not made
// up for.
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

// NowAndEvery yields at once, and then as [Every] does.
func NowAndEvery(ctx context.Context, d time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		if yield() {
			Every(ctx, d)(yield)
		}
	}
}
