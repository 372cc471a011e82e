// Package derive folds telemetry into states: for every partition that this
// node owns, it reads the samples that were acknowledged, in the order in which
// they were stored, applies [vehicle.Observe], and commits the states together
// with the place it has read up to. It has no rules of its own and must never
// store the place without the states. States may be ahead of the place: what is
// folded into them again changes nothing.
//
// # Memory
//
// Every vehicle's state is in the store; what is in memory are the states that
// changed and are not committed yet, at most [Config.MaxStates] a partition, and
// the states of the [Config.MaxCached] vehicles of a partition that were heard
// of last, about 1.3 KB each. A vehicle that is in neither is read from the
// store when it is heard of, together with the others of the same group commit;
// taking a partition reads none. So a fleet may be larger than the memory: it
// then costs a read, and no correctness.
package derive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
)

// Partition is one partition in this node's hands. Its methods are called one at
// a time, but for State.
type Partition interface {
	// State returns the stored state of a vehicle of the partition, as of the
	// last Commit of this node or, before that, of whoever owned the
	// partition before; false if there is none. It is called from several
	// goroutines at once, and not while another method is.
	State(ctx context.Context, id vehicle.ID) (vehicle.State, bool, error)
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

// Config of a [Deriver]. All but MaxCached and Log is required.
type Config struct {
	Partitions int
	// Take makes this node the owner of partition p and fences out whoever
	// owned it before.
	Take func(ctx context.Context, p int) (Partition, error)
	// MaxStates is how many states one Commit can store. It must be at
	// least the number of vehicles in what one Next returns. Many times that
	// lets a backlog be folded with few states stored.
	MaxStates int
	// MaxCached is how many vehicles' states a partition keeps in memory
	// beside those; 0 means 100,000.
	MaxCached int
	Log       *slog.Logger // nil: discarded
}

// Deriver owns partitions and folds them. Make one with [New].
type Deriver struct {
	config Config
	folded atomic.Uint64
	read   atomic.Uint64
}

// New returns a deriver that starts with [Deriver.Run].
func New(c Config) *Deriver {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MaxCached <= 0 {
		c.MaxCached = 100_000
	}
	return &Deriver{config: c}
}

// Samples is how many samples were folded since the start.
func (d *Deriver) Samples() uint64 { return d.folded.Load() }

// StatesRead is how many states were read from the store since the start, each
// because its vehicle was not in memory. If it grows as fast as Samples does,
// MaxCached is too small for the fleet.
func (d *Deriver) StatesRead() uint64 { return d.read.Load() }

// retryAfter is how long a partition rests after it could not be worked on.
const retryAfter = time.Second

// Run folds all partitions until the context ends. A partition that fails is
// taken again, at once if its error is Recalled; what it had folded but not committed is folded again from the
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
				if r, ok := errors.AsType[interface {
					error
					Recalled() bool
				}](err); ok && r.Recalled() {
					d.config.Log.Info("a partition is taken again", "partition", p, "reason", err)
					continue
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

// States wait for more to be committed with them while more samples are at hand,
// for as long as the commit before took: folding then keeps pace with storing.
// When commits are quick, nobody waits long for an answer; when there is a
// backlog, a vehicle that is in it many times is stored once. linger bounds the
// wait, so that a few vehicles that never fall silent are still seen.
const (
	linger      = 100 * time.Millisecond
	leastLinger = 2 * time.Millisecond
)

// fold works on one partition until something fails.
func (d *Deriver) fold(ctx context.Context, p int) error {
	part, err := d.config.Take(ctx, p)
	if err != nil {
		return err
	}
	defer part.Close()
	f := newFolding(d.config.MaxStates, d.config.MaxCached)
	var since time.Time // of the oldest fold that is not committed
	lingers := leastLinger
	commit := func() error {
		start := time.Now()
		err := f.commit(ctx, part)
		lingers = min(max(time.Since(start), leastLinger), linger)
		return err
	}
	for {
		wait := renewAfter
		if f.seq != 0 {
			wait = lingers
		}
		idle, cancel := context.WithTimeout(ctx, wait)
		seq, samples, err := part.Next(idle)
		late := err != nil && idle.Err() != nil && ctx.Err() == nil
		cancel()
		if late {
			if err := commit(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if f.seq != 0 && !f.fits(samples) {
			if err := commit(); err != nil {
				return err
			}
		}
		if f.seq == 0 {
			since = time.Now()
		}
		n, err := f.load(ctx, part, samples)
		if err != nil {
			return fmt.Errorf("the states of partition %d cannot be read: %w", p, err)
		}
		d.read.Add(uint64(n))
		f.observe(seq, samples)
		d.folded.Add(uint64(len(samples)))
		if part.Waiting() && time.Since(since) < lingers {
			continue // a larger commit costs hardly more than a small one
		}
		if err := commit(); err != nil {
			return err
		}
	}
}
