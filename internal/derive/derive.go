// Package derive folds telemetry into states. For every partition that this node owns, it reads
// the acknowledged samples in the order in which they were stored, applies [Config.Observe],
// and commits the states together with the cursor, which is the sequence up to which the
// partition is folded. The package has no rules of its own, and it never stores a cursor
// without the states. States may be ahead of the cursor, because folding a sample twice changes
// nothing.
//
// DESIGN.md describes leases, takeover and checkpoints.
//
// # Memory
//
// The state of every vehicle is in the store. Memory holds the changed states that are not
// committed yet, at most [Config.MaxStates] for each partition, and up to the same number of states
// of a checkpoint in progress. A cache holds the states of the [Config.MaxCached] vehicles of each
// partition that reported most recently. A state takes about 1.6 KB. If a vehicle reports and its
// state is not in memory, the state is read from the store, together with the other missing states
// of the same group commit. Taking a partition reads no state. So the fleet may be larger than the
// memory, at the cost of reads.
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

// Config configures a [Deriver]. All fields are required except Observe, Members, MaxLoad,
// Checkpoint, MaxCached and Log.
type Config struct {
	Partitions int
	// Observe folds a sample into the state of its vehicle. Calls for different partitions are
	// concurrent. If nil, [vehicle.Observe] is used.
	Observe func(vehicle.State, vehicle.Sample) vehicle.State
	// Take makes this node the owner of partition p and fences the previous owner. It returns
	// [store.ErrHeld] if another live node owns the partition and is about to release it.
	Take func(ctx context.Context, p int) (store.Partition, error)
	// Members assigns the partitions to nodes. If nil, all partitions are assigned to this node.
	Members *Members
	// Release releases partition p if this node owns it. The node may own p without knowing it, if
	// the response to a Take was lost. Release is not needed if Members is nil.
	Release func(ctx context.Context, p int) error
	// GiveUp is called when this node cannot fold an assigned partition because a newer version
	// wrote its records. If other nodes can fold it, GiveUp should end the context of Run. GiveUp
	// is not needed if Members is nil.
	GiveUp func()
	// MaxLoad is the maximum number of states that one Load reads. 0 means 999.
	MaxLoad int
	// MaxStates is the maximum number of states that one Commit stores. It must be at least the
	// maximum number of vehicles in the samples that one Next returns. With a much larger limit, a
	// vehicle with many samples in a backlog is stored less often.
	MaxStates int
	// Checkpoint is the interval at which folded states are stored, while folding continues.
	// After a crash, samples whose states were not stored are folded again. If Checkpoint is
	// not 0, partitions must allow a Commit concurrently with other methods. 0 means that
	// folding waits for each commit.
	Checkpoint time.Duration
	// MaxCached is the number of states of a partition in the cache. 0 means 100,000.
	MaxCached int
	Log       *slog.Logger // if nil, nothing is logged
}

// Deriver takes partitions and folds them. Create one with [New].
type Deriver struct {
	config Config
	folded atomic.Uint64
	read   atomic.Uint64

	retryLog, releaseLog lograte.Warning // for all partitions
}

// New returns a Deriver. [Deriver.Run] starts it.
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

// Samples returns the number of samples folded since the start.
func (d *Deriver) Samples() uint64 { return d.folded.Load() }

// StatesRead returns the number of states that were read from the store since the start because
// they were not in memory. If it grows as fast as Samples, MaxCached is too small for the fleet.
func (d *Deriver) StatesRead() uint64 { return d.read.Load() }

// retryAfter is the pause after an error before a partition is taken again.
const retryAfter = time.Second

// heldPoll is the interval at which a node checks whether another node has released a
// partition.
const heldPoll = 250 * time.Millisecond

// newerPause is the pause before this node takes a partition again after it met records of a newer
// version in it, if no node of that version has joined. It equals the interval of lease renewals.
const newerPause = 2 * time.Second

// Run folds the partitions of this node until the context ends. If a partition cannot be folded
// because of an error, Run pauses and takes the partition again, without a pause if the error is
// [store.ErrRecalled]. Folding then continues from the last commit: samples that were folded but
// not committed are folded again, with the same result.
func (d *Deriver) Run(ctx context.Context) {
	var running sync.WaitGroup
	for p := range d.config.Partitions {
		running.Go(func() {
			for ctx.Err() == nil {
				err := d.runPartition(ctx, p)
				if ctx.Err() != nil {
					return
				}
				rest := retryAfter
				switch {
				case err == nil:
					continue // the partition is now assigned to another node
				case errors.Is(err, store.ErrHeld):
					rest = heldPoll
				case errors.Is(err, store.ErrRecalled):
					d.config.Log.Info("reacquiring partition", "partition", p, "reason", err)
					continue
				case codec.IsNewer(err) && d.config.GiveUp != nil:
					d.config.GiveUp()
					rest = newerPause
				default:
					d.retryLog.Log(d.config.Log, "reacquiring partition after an error", "partition", p, "error", err)
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

// renewAfter is how long an idle partition waits before it writes its cursor again. Otherwise the
// cursor could become the oldest record of the stream STATES, and a full STATES drops its oldest
// record.
const renewAfter = time.Minute

// runPartition waits until a partition is assigned to this node, takes it, and folds it until an
// error occurs. It returns nil once the partition is assigned to another node. It then drops the
// states in memory, because another node may be the next to write them.
func (d *Deriver) runPartition(ctx context.Context, p int) error {
	assigned := context.Background()
	if d.config.Members != nil {
		var err error
		if assigned, err = d.await(ctx, p); err != nil {
			return err
		}
	}
	part, err := d.config.Take(ctx, p)
	if err != nil {
		return err
	}
	defer part.Close()
	f := newFolding(d.config.Observe, d.config.MaxStates, d.config.MaxCached, d.config.MaxLoad)
	err = d.foldPartition(ctx, assigned, p, part, f)
	if d.config.Members != nil && (ctx.Err() != nil || codec.IsNewer(err)) {
		// The next owner continues from the last commit.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer cancel()
		if failed := d.config.Release(last, p); failed != nil {
			d.config.Log.Warn("cannot release partition: another node takes it once this node's lease is stale",
				"partition", p, "error", failed)
		}
	}
	return err
}

// await waits until partition p is assigned to this node, and returns a context that ends when p is
// assigned to another node. Until then this node must not own p, because no other node takes a
// partition from a live owner. So await releases p, and repeats this until it succeeds. While it
// waits, it releases p again at intervals, because the node may own p without knowing it (see
// Config.Release).
func (d *Deriver) await(ctx context.Context, p int) (context.Context, error) {
	m := d.config.Members
	for {
		if assigned := m.assignment(p); assigned != nil {
			return assigned, nil
		}
		rest := 2 * m.stale
		if err := d.config.Release(ctx, p); codec.IsNewer(err) {
			return nil, err // another node takes the partition once the lease of this node is stale
		} else if err != nil {
			if ctx.Err() == nil {
				d.releaseLog.Log(d.config.Log, "cannot release partition yet; will retry", "partition", p, "error", err)
			}
			rest = heldPoll
		}
		wait, cancel := context.WithTimeout(ctx, rest)
		assigned, err := m.await(wait, p)
		cancel()
		if err == nil || ctx.Err() != nil {
			return assigned, err
		}
	}
}

// foldPartition folds a partition that this node has taken, as long as it is assigned to this node.
func (d *Deriver) foldPartition(ctx, assigned context.Context, p int, part store.Partition, f *folding) error {
	// Waiting for samples ends with either context. Storing ends only with ctx.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(assigned, cancel)()
	c := checkpoints{part: part, f: f, every: d.config.Checkpoint, lingers: minLinger}
	defer c.abandon()
	for {
		wait := renewAfter
		if f.seq != 0 {
			wait = max(c.minWait(), c.holdTime()-time.Since(c.since))
		}
		idle, cancel := context.WithTimeout(waiting, wait)
		seq, samples, err := part.Next(idle)
		late := err != nil && idle.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case assigned.Err() != nil && ctx.Err() == nil && (late || err == nil):
			return c.commit(ctx) // without the samples just read; the next owner reads them again
		case late && f.seq != 0:
			err = c.checkpoint(ctx)
		case late:
			err = c.renew(ctx)
		case errors.Is(err, store.ErrSettle):
			err = c.commit(ctx)
		case err != nil && ctx.Err() != nil && d.config.Checkpoint > 0:
			// Without this commit, the next start would have to fold these samples again.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
			defer cancel()
			return c.commit(last)
		case err == nil:
			err = d.foldSamples(ctx, p, &c, seq, samples)
		}
		if err != nil {
			return err
		}
	}
}

// foldSamples folds samples, and starts a checkpoint if one is due.
func (d *Deriver) foldSamples(ctx context.Context, p int, c *checkpoints, seq uint64, samples []vehicle.Sample) error {
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
		return fmt.Errorf("cannot read the states of partition %d: %w", p, err)
	}
	d.read.Add(uint64(n))
	c.f.apply(seq, c.part.Stored(), samples)
	c.f.answer(c.part)
	d.folded.Add(uint64(len(samples)))
	if (c.every > 0 || c.part.Waiting()) && time.Since(c.since) < c.holdTime() {
		return nil // the states wait, because a larger commit costs almost the same
	}
	return c.checkpoint(ctx)
}
