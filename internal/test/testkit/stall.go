package testkit

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Stall measures for how long this machine runs no program, or its disk writes nothing. It ignores
// delays of up to 200 ms, which a busy machine has. end must be called once.
func Stall(dir string) (end func() time.Duration) {
	const nap, busy = 10 * time.Millisecond, 200 * time.Millisecond
	var late, slow atomic.Int64
	done := make(chan struct{})
	var measuring sync.WaitGroup
	over := func(sum *atomic.Int64, began time.Time) {
		if d := time.Since(began); d > busy {
			sum.Add(int64(d))
		}
	}
	measuring.Go(func() {
		for {
			began := time.Now()
			select {
			case <-done:
				return
			case <-time.After(nap):
				over(&late, began)
			}
		}
	})
	measuring.Go(func() {
		f, err := os.Create(filepath.Join(dir, "stall"))
		if err != nil {
			return
		}
		defer os.Remove(f.Name())
		defer f.Close()
		for {
			select {
			case <-done:
				return
			case <-time.After(nap):
			}
			began := time.Now()
			if _, err := f.Write([]byte{0}); err != nil || f.Sync() != nil {
				return
			}
			over(&slow, began)
		}
	})
	return func() time.Duration {
		close(done)
		measuring.Wait()
		return time.Duration(max(late.Load(), slow.Load()))
	}
}
