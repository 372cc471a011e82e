// Package derive folds telemetry into states: for every partition that this
// node owns, it reads the samples that were acknowledged, in the order in which
// they were stored, applies [Config.Observe], and commits the states together
// with the place it has read up to. It has no rules of its own and must never
// store the place without the states. States may be ahead of the place: what is
// folded into them again changes nothing.
//
// # Memory
//
// Every vehicle's state is in the store; what is in memory are the states that
// changed and are not committed yet, at most [Config.MaxStates] a partition and as many
// of a checkpoint that is being stored, and
// the states of the [Config.MaxCached] vehicles of a partition that were heard
// of last, about 1.6 KB each. A vehicle that is in neither is read from the
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

	"carstate/internal/lograte"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Config of a [Deriver]. All but Observe, Members, MaxLoad, Checkpoint, MaxCached and Log is
// required.
type Config struct {
	Partitions int
	// Observe folds a sample into the state of its vehicle. Partitions call it at the
	// same time. If nil, [vehicle.Observe] does.
	Observe func(vehicle.State, vehicle.Sample) vehicle.State
	// Take makes this node the owner of partition p and fences out whoever
	// owned it before. [store.ErrHeld] means that another node has it and is
	// about to release it.
	Take func(ctx context.Context, p int) (store.Partition, error)
	// Members says which partitions are this node's; nil: all of them, always.
	Members *Members
	// Release gives partition p up if this node owns it, perhaps without
	// knowing it: the answer of a Take may have been lost. Not needed without
	// Members.
	Release func(ctx context.Context, p int) error
	// GiveUp is called when a newer version wrote what is stored of a partition that is this node's, so
	// that it cannot fold on. If others can, the context of Run is to end. Not needed without Members.
	GiveUp func()
	// MaxLoad is how many states one Load can bring; 0 means 999.
	MaxLoad int
	// MaxStates is how many states one Commit can store. It must be at
	// least the number of vehicles in what one Next returns. Many times that
	// lets a backlog be folded with few states stored.
	MaxStates int
	// Checkpoint is how often folded states are stored, while folding goes on. After a
	// crash what was not stored is folded again. 0 means that folding waits until states
	// are stored. Otherwise partitions must allow a Commit beside their other methods.
	Checkpoint time.Duration
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

	again, held lograte.Warning // of all partitions
}

// New returns a deriver that starts with [Deriver.Run].
func New(c Config) *Deriver {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = vehicle.Observe
	}
	if c.MaxCached <= 0 {
		c.MaxCached = 100_000
	}
	if c.MaxLoad <= 0 {
		c.MaxLoad = 999
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

// heldAgain is how long to wait before looking again whether another node has
// released a partition.
const heldAgain = 250 * time.Millisecond

// newerAgain is how long a partition rests of which a newer version stored something, while no node
// of that version shares the folding. Nodes renew their leases as often.
const newerAgain = 2 * time.Second

// Run folds the partitions of this node until the context ends. A partition that
// fails is taken again, at once after [store.ErrRecalled]; what it had folded but
// not committed is folded again from the last commit, which comes to the same
// states.
func (d *Deriver) Run(ctx context.Context) {
	var running sync.WaitGroup
	for p := range d.config.Partitions {
		running.Go(func() {
			for ctx.Err() == nil {
				err := d.fold(ctx, p)
				if ctx.Err() != nil {
					return
				}
				rest := retryAfter
				switch {
				case err == nil:
					continue // it is another's now
				case errors.Is(err, store.ErrHeld):
					rest = heldAgain
				case errors.Is(err, store.ErrRecalled):
					d.config.Log.Info("a partition is taken again", "partition", p, "reason", err)
					continue
				case codec.IsNewer(err) && d.config.GiveUp != nil:
					d.config.GiveUp()
					rest = newerAgain
				default:
					d.again.Log(d.config.Log, "a partition is taken again", "partition", p, "error", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(rest):
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

// fold waits until a partition is this node's and works on it until something
// fails, or with a nil error until it is another's. The states at hand do not
// outlive that: another node may write them next.
func (d *Deriver) fold(ctx context.Context, p int) error {
	ours := context.Background()
	if d.config.Members != nil {
		var err error
		if ours, err = d.await(ctx, p); err != nil {
			return err
		}
	}
	part, err := d.config.Take(ctx, p)
	if err != nil {
		return err
	}
	defer part.Close()
	f := newFolding(d.config.Observe, d.config.MaxStates, d.config.MaxCached, d.config.MaxLoad)
	err = d.work(ctx, ours, p, part, f)
	if d.config.Members != nil && (ctx.Err() != nil || codec.IsNewer(err)) {
		// Whoever has it next goes on from the last commit.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer cancel()
		if failed := d.config.Release(last, p); failed != nil {
			d.config.Log.Warn("a partition was not released: another node takes it once this one's lease is stale", "partition", p, "error", failed)
		}
	}
	return err
}

// await waits until a partition is to be this node's. Until then this node must
// not own it, because nobody takes it from a node that lives: so it is released
// before the wait, until that succeeds, and now and then while it lasts.
func (d *Deriver) await(ctx context.Context, p int) (context.Context, error) {
	m := d.config.Members
	for {
		if ours := m.ours(p); ours != nil {
			return ours, nil
		}
		rest := 2 * m.stale
		if err := d.config.Release(ctx, p); codec.IsNewer(err) {
			return nil, err // another node waits until this one's lease is stale
		} else if err != nil {
			if ctx.Err() == nil {
				d.held.Log(d.config.Log, "a partition is not released yet", "partition", p, "error", err)
			}
			rest = heldAgain
		}
		wait, cancel := context.WithTimeout(ctx, rest)
		ours, err := m.await(wait, p)
		cancel()
		if err == nil || ctx.Err() != nil {
			return ours, err
		}
	}
}

// work folds a partition that was taken while it is ours.
func (d *Deriver) work(ctx, ours context.Context, p int, part store.Partition, f *folding) error {
	// What is waited for ends with either context; what is stored only with ctx.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ours, cancel)()
	c := checkpoints{part: part, f: f, every: d.config.Checkpoint, lingers: leastLinger}
	defer c.abandon()
	for {
		wait := renewAfter
		if f.seq != 0 {
			wait = max(c.least(), c.hold()-time.Since(c.since))
		}
		idle, cancel := context.WithTimeout(waiting, wait)
		seq, samples, err := part.Next(idle)
		late := err != nil && idle.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case ours.Err() != nil && ctx.Err() == nil && (late || err == nil):
			return c.commit(ctx) // without what was just read, which the next owner reads again
		case late && f.seq != 0:
			err = c.checkpoint(ctx)
		case late:
			err = c.renew(ctx)
		case errors.Is(err, store.ErrSettle):
			err = c.commit(ctx)
		case err != nil && ctx.Err() != nil && d.config.Checkpoint > 0:
			// Otherwise the next start would fold this again.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
			defer cancel()
			return c.commit(last)
		case err == nil:
			err = d.observe(ctx, p, &c, seq, samples)
		}
		if err != nil {
			return err
		}
	}
}

// observe folds samples, and begins a checkpoint if one is due.
func (d *Deriver) observe(ctx context.Context, p int, c *checkpoints, seq uint64, samples []vehicle.Sample) error {
	if c.f.seq != 0 && !c.f.fits(samples) {
		if err := c.makeRoom(ctx); err != nil {
			return err
		}
	}
	if c.f.seq == 0 {
		c.since = time.Now()
	}
	n, err := c.f.load(ctx, c.part, samples)
	if err != nil {
		return fmt.Errorf("the states of partition %d cannot be read: %w", p, err)
	}
	d.read.Add(uint64(n))
	c.f.observe(seq, c.part.Stored(), samples)
	c.f.answer(c.part)
	d.folded.Add(uint64(len(samples)))
	if (c.every > 0 || c.part.Waiting()) && time.Since(c.since) < c.hold() {
		return nil // a larger commit costs hardly more than a small one
	}
	return c.checkpoint(ctx)
}
