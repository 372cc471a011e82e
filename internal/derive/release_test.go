package derive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// idle has no telemetry, and runs on the fake clock, unlike a real engine.
type idle struct {
	store.Partition
	err   error         // of Next
	takes time.Duration // duration of a Save
	saves []uint64      // numbers of checkpoints
}

func (p *idle) Checkpoints() []store.Checkpoint                                   { return nil }
func (p *idle) End() uint64                                                       { return 0 }
func (p *idle) Seek(context.Context, store.Checkpoint) error                      { return nil }
func (p *idle) Live(context.Context, func(yield func(vehicle.ID, *store.Answer))) {}
func (p *idle) Close()                                                            {}
func (p *idle) Next(ctx context.Context) (store.Group, error) {
	if p.err != nil {
		return store.Group{}, p.err
	}
	<-ctx.Done()
	return store.Group{}, ctx.Err()
}

func (p *idle) Save(
	ctx context.Context, c store.Checkpoint, _ iter.Seq[store.Piece], _ bool,
) (store.Checkpoint, error) {
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return c, ctx.Err()
	}
	p.saves = append(p.saves, c.Number)
	return c, nil
}

// An idle partition stores only its cursor, every minute, and at the end, even if that takes more
// than a second.
func TestIdleRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*renewAfter+time.Second)
		defer cancel()
		part := &idle{takes: 1500 * time.Millisecond}
		New(Config{
			Partitions: 1, Checkpoint: time.Second,
			Take: func(context.Context, int, store.Owner) (store.Partition, error) { return part, nil },
		}).Run(ctx)
		if !slices.Equal(part.saves, []uint64{1, 0, 0}) {
			t.Fatalf("got %+v, want an empty checkpoint and then the cursor alone", part.saves)
		}
	})
}

// A node repeats the release of a partition that is assigned to another until it succeeds, and again
// if an earlier Take is stored only after it: no other node takes a partition from a live owner.
func TestRun_RetriesRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := observe(t)
		o.renewed("self")
		var mu sync.Mutex
		owned, failures, releases := false, 0, 0
		is := func(want bool, tries int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if owned != want || releases < tries {
				t.Fatalf("owned: %v after %d releases, want %v after at least %d", owned, releases, want, tries)
			}
		}
		d := New(Config{
			Partitions: 1, Members: o.Members,
			Take: func(context.Context, int, store.Owner) (store.Partition, error) {
				mu.Lock()
				defer mu.Unlock()
				owned = true
				return new(idle), nil
			},
			Release: func(context.Context, int) error {
				mu.Lock()
				defer mu.Unlock()
				if releases++; failures > 0 {
					failures--
					return errors.New("not now")
				}
				owned = false
				return nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		is(true, 0)
		// The partition is assigned elsewhere, and the engine does not respond at first.
		mu.Lock()
		failures = 3
		mu.Unlock()
		for i := 0; o.assignment(0) != nil; i++ {
			o.renewed("member" + string(rune('a'+i)))
		}
		is(true, 1)
		time.Sleep(10 * heldPoll) // on the fake clock
		is(false, 4)
		// The response to an earlier Take was lost, but its cursor was stored.
		mu.Lock()
		owned = true
		mu.Unlock()
		time.Sleep(3 * o.stale)
		is(false, 5)
		stop()
		running.Wait()
	})
}

// If another node is about to release the partition, the pause is shorter.
func TestRun_PauseBeforeRetry(t *testing.T) {
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{fmt.Errorf("partition 0: %w", store.ErrHeld), heldPoll},
		{store.ErrFenced, retryAfter},
		{errors.New("no answer"), retryAfter},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var took []time.Time
			New(Config{Partitions: 1, Take: func(context.Context, int, store.Owner) (store.Partition, error) {
				if took = append(took, time.Now()); len(took) == 2 {
					stop()
				}
				return nil, c.err
			}}).Run(ctx)
			if rest := took[1].Sub(took[0]); rest != c.want {
				t.Errorf("after %q it is taken again in %v, want %v", c.err, rest, c.want)
			}
		})
	}
}

// A node with many partitions logs an outage once a minute, not for each of them.
func TestRun_OutageLogsAtIntervals(t *testing.T) {
	for what, failing := range map[string]func(*Config, *observer){
		"cannot release partition yet; will retry": func(c *Config, o *observer) {
			for i := range 20 {
				o.renewed("member" + string(rune('a'+i)))
			}
			c.Members = o.Members
			c.Release = func(context.Context, int) error { return errors.New("no answer") }
		},
		"reacquiring partition after an error": func(*Config, *observer) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := observe(t)
			o.renewed("self")
			log := new(testkit.Buffer)
			c := Config{
				Partitions: 16, Log: slog.New(slog.NewTextHandler(log, nil)),
				Take: func(context.Context, int, store.Owner) (store.Partition, error) { return nil, errors.New("no answer") },
			}
			failing(&c, o)
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { New(c).Run(ctx) })
			time.Sleep(10*time.Minute + time.Second) // on the fake clock
			stop()
			running.Wait()
			if n := log.Count(what); n < 10 || n > 11 {
				t.Errorf("%d lines of %q in ten minutes:\n%.2000s", n, what, log)
			}
			if !strings.Contains(log.String(), "times_since_last_line=") {
				t.Errorf("no line has the number of suppressed ones: %s", log)
			}
		})
	}
}

// A partition has a record of a newer version. Unless a node of that version has joined, this node
// releases the partition and tries again after a pause. Otherwise it gives up all its partitions.
func TestNewerPartitionGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := observe(t)
		o.renewed("self")
		ctx, giveUp := context.WithCancel(t.Context())
		var took []time.Time
		released, asked := 0, 0
		New(Config{
			Partitions: 1, Members: o.Members,
			Take: func(context.Context, int, store.Owner) (store.Partition, error) {
				took = append(took, time.Now())
				return &idle{err: fmt.Errorf("TELEMETRY: record 1: %w", codec.ErrNewer)}, nil
			},
			Release: func(context.Context, int) error { released++; return nil },
			GiveUp: func() {
				if asked++; asked == 2 { // a newer node has joined
					giveUp()
				}
			},
		}).Run(ctx)
		if len(took) != 2 || took[1].Sub(took[0]) != newerPause || released != 2 {
			t.Errorf("taken at %v, released %d times; want 2 of each, %v apart", took, released, newerPause)
		}
	})
}
