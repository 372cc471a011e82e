// Package derive folds telemetry into states: for every partition that this
// node owns, it reads the samples that were acknowledged, in the order in which
// they were stored, applies [vehicle.Observe], and commits the states together
// with the place it has read up to. It has no rules of its own and must never
// store a state without the place, or the place without the states.
package derive

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
)

// Partition is one partition in this node's hands. Its methods are called from
// one goroutine, Waiting included.
type Partition interface {
	// States yields the stored state of every vehicle of the partition.
	States(ctx context.Context, put func(vehicle.ID, vehicle.State)) error
	// Next waits for the next stored samples that are not folded yet.
	Next(ctx context.Context) (seq uint64, samples []vehicle.Sample, err error)
	// Waiting reports whether Next would return at once.
	Waiting() bool
	// Commit stores states and the fact that all up to seq is folded, or
	// nothing. It tries until the context ends or the partition is lost.
	// With seq 0 it only shows that the owner is alive.
	Commit(ctx context.Context, seq uint64, states map[vehicle.ID]vehicle.State) error
	// Close ends reading.
	Close()
}

// Config of a [Deriver]. All but Log is required.
type Config struct {
	Partitions int
	// Take makes this node the owner of partition p and fences out whoever
	// owned it before.
	Take func(ctx context.Context, p int) (Partition, error)
	// MaxStates is how many states one Commit can store. It must be at
	// least the number of vehicles in what one Next returns.
	MaxStates int
	Log       *slog.Logger // nil: discarded
}

// Deriver owns partitions and folds them. Make one with [New].
type Deriver struct {
	config Config
	folded atomic.Uint64
}

// New returns a deriver that starts with [Deriver.Run].
func New(c Config) *Deriver {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Deriver{config: c}
}

// Samples is how many samples were folded since the start.
func (d *Deriver) Samples() uint64 { return d.folded.Load() }

// retryAfter is how long a partition rests after it could not be worked on.
const retryAfter = time.Second

// Run folds all partitions until the context ends. A partition that fails is
// taken again; what it had folded but not committed is folded again from the
// last commit, which comes to the same states.
func (d *Deriver) Run(ctx context.Context) {
	var running sync.WaitGroup
	for p := range d.config.Partitions {
		running.Go(func() {
			for ctx.Err() == nil {
				err := d.fold(ctx, p)
				if ctx.Err() != nil {
					return
				}
				d.config.Log.Warn("a partition is taken again", "partition", p, "error", err)
				select {
				case <-ctx.Done():
				case <-time.After(retryAfter):
				}
			}
		})
	}
	running.Wait()
}

// renewAfter is how long an idle partition waits before it commits its cursor
// again, so that the record never becomes the oldest of its stream, which is
// the one that a full stream drops.
const renewAfter = time.Minute

// linger bounds how long states wait for more to be committed with them, so
// that a few vehicles that never fall silent are still seen.
const linger = 100 * time.Millisecond

// fold works on one partition until something fails.
func (d *Deriver) fold(ctx context.Context, p int) error {
	part, err := d.config.Take(ctx, p)
	if err != nil {
		return err
	}
	defer part.Close()
	states := make(map[vehicle.ID]vehicle.State)
	if err := part.States(ctx, func(id vehicle.ID, s vehicle.State) { states[id] = s }); err != nil {
		return fmt.Errorf("the states of partition %d cannot be loaded: %w", p, err)
	}
	f := folding{states: states, dirty: make(map[vehicle.ID]vehicle.State), limit: d.config.MaxStates}
	var since time.Time // of the oldest fold that is not committed
	for {
		wait := renewAfter
		if f.seq != 0 {
			wait = linger
		}
		idle, cancel := context.WithTimeout(ctx, wait)
		seq, samples, err := part.Next(idle)
		late := err != nil && idle.Err() != nil && ctx.Err() == nil
		cancel()
		if late {
			if err := f.commit(ctx, part); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if f.seq != 0 && !f.fits(samples) {
			if err := f.commit(ctx, part); err != nil {
				return err
			}
		}
		if f.seq == 0 {
			since = time.Now()
		}
		f.observe(seq, samples)
		d.folded.Add(uint64(len(samples)))
		if part.Waiting() && time.Since(since) < linger {
			continue // a larger commit costs hardly more than a small one
		}
		if err := f.commit(ctx, part); err != nil {
			return err
		}
	}
}

// folding is a partition's states and what of them is not committed yet.
type folding struct {
	states map[vehicle.ID]vehicle.State // as of the last sample folded
	dirty  map[vehicle.ID]vehicle.State // changed since the last commit
	seq    uint64                       // what the last sample folded belongs to; 0: all is committed
	limit  int
}

// fits reports whether the samples can be folded before the next commit.
func (f *folding) fits(samples []vehicle.Sample) bool {
	if len(f.dirty)+len(samples) <= f.limit {
		return true
	}
	added := make(map[vehicle.ID]struct{})
	for i := range samples {
		id := samples[i].Vehicle
		if _, ok := f.dirty[id]; !ok {
			added[id] = struct{}{}
		}
	}
	return len(f.dirty)+len(added) <= f.limit
}

func (f *folding) observe(seq uint64, samples []vehicle.Sample) {
	f.seq = seq
	for i := range samples {
		x := &samples[i]
		old := f.states[x.Vehicle]
		if next := vehicle.Observe(old, *x); next != old {
			f.states[x.Vehicle] = next
			f.dirty[x.Vehicle] = next
		}
	}
}

// commit stores what is dirty; with nothing folded it renews the cursor. After
// an error the dirty set is still whole.
func (f *folding) commit(ctx context.Context, part Partition) error {
	if err := part.Commit(ctx, f.seq, f.dirty); err != nil {
		return err
	}
	clear(f.dirty)
	f.seq = 0
	return nil
}
