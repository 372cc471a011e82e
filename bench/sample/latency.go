package sample

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// latencies are how long something took, each time.
type latencies struct {
	mu   sync.Mutex // guards took
	took []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, d)
}

// quantile is the time within which a part of all was done, in milliseconds.
func (l *latencies) quantile(part float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.took) == 0 {
		return 0
	}
	slices.Sort(l.took)
	i := min(int(part*float64(len(l.took))), len(l.took)-1)
	return l.took[i].Seconds() * 1000
}

// openLoop calls f so many times a second, whatever f takes: a call that is late
// because those before it were slow is late in what it measures too. f gets the
// number of the call and the time at which it was due. At most atOnce calls are
// under way.
func openLoop(ctx context.Context, perSecond float64, atOnce int, lasting time.Duration, f func(i int, due time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, lasting+time.Minute)
	defer cancel()
	type call struct {
		i   int
		due time.Time
	}
	calls := make(chan call, 1<<16)
	start := time.Now()
	go func() {
		defer close(calls)
		for i := 0; ; i++ {
			due := start.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
			if due.Sub(start) >= lasting {
				return
			}
			time.Sleep(time.Until(due))
			select {
			case calls <- call{i, due}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return together(atOnce, func(int) error {
		for c := range calls {
			if err := f(c.i, c.due); err != nil {
				cancel()
				return err
			}
		}
		return ctx.Err()
	})
}

// fsyncs measures the disk itself: 4 KiB are written and fsynced, again and
// again.
func fsyncs(dir string, times int) (_ *latencies, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	l, page := new(latencies), make([]byte, 4096)
	for range times {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, fmt.Errorf("fsync: %w", err)
		}
		l.add(time.Since(start))
	}
	return l, nil
}
