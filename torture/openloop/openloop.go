// Package openloop measures the delays of a service for the clients of a row. The requests are due
// at a constant rate, regardless of how fast the service answers. The delay of each request is
// measured from the time at which it was due, so a stall delays all requests that are due during it.
package openloop

import (
	"context"
	"sync"
	"time"

	"carstate/torture/row"
)

// Send sends the next request of one client and waits for the answer.
type Send func(context.Context) error

// window is the time over which a percentile is measured.
const window = time.Second

// Measure sends rate requests a second in total, for a number of windows of one second. The
// clients take turns. Measure returns the 99th percentile of the delays in each window. A
// failed request is included with its delay until the failure, because its answer would have
// taken at least as long. The function done receives the error of each request, or nil, one
// at a time. Measure ends early if ctx ends.
func Measure(ctx context.Context, windows, rate int, clients []Send, done func(error)) (p99 []time.Duration) {
	began := time.Now()
	end := began.Add(time.Duration(windows) * window)
	var mu sync.Mutex // guards took, and the calls of done
	took := make([][]time.Duration, windows)
	var all sync.WaitGroup
	for i, send := range clients {
		all.Go(func() {
			due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
			every := time.Duration(len(clients)) * time.Second / time.Duration(rate)
			for ; due.Before(end); due = due.Add(every) {
				row.Pause(ctx, time.Until(due))
				err := send(ctx)
				delay := time.Since(due)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				at := due.Sub(began) / window
				took[at] = append(took[at], delay)
				done(err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, t := range took {
		p99 = append(p99, row.Percentile(t, 0.99))
	}
	return p99
}
