// Package derive folds telemetry into states. For every partition that this node owns, it reads the
// acknowledged samples in the order in which they were stored, and applies [Config.Fold] to each.
// It then commits the new states together with the cursor, the sequence up to which the partition
// is folded. The package has no rules of its own, and it never stores a cursor without the states.
//
// DESIGN.md describes leases, takeover, checkpoints and what is in memory.
package derive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// Config configures a [Deriver]. Partitions and Take are required, and with Members also Release.
type Config struct {
	Partitions int
	// Fold folds a sample into the state of its vehicle, and reports whether the state changed.
	// Calls for different partitions are concurrent. If nil, [vehicle.State.Fold] is used.
	Fold func(*vehicle.State, *vehicle.Sample) (changed bool)
	// Take makes this node the owner of partition p and fences the previous owner. If another live
	// node owns the partition, Take returns [store.ErrHeld]; that node is about to release the
	// partition.
	Take func(ctx context.Context, p int) (store.Partition, error)
	// Members assigns the partitions to nodes. If nil, all partitions are assigned to this node.
	Members *Members
	// Release gives up partition p if this node owns it. It is also called if this node does not
	// own p, because the Deriver may not know: the response to a Take may have been lost. If
	// Members is nil, Release is not used.
	Release func(ctx context.Context, p int) error
	// GiveUp is called when this node cannot fold a partition assigned to it, because a newer
	// version of the service wrote records of the partition. If nodes of that version are there to
	// fold the partitions, GiveUp should end the context of Run. If GiveUp does not end that
	// context, or is nil, this node tries again later.
	GiveUp func()
	// MaxStates is the maximum number of changed states that are not stored; 0 means no limit. It
	// must be at least the maximum number of vehicles in the samples that one call of Next returns.
	MaxStates int
	// Checkpoint is the interval at which folded states are stored, while folding continues. After
	// a crash, samples whose states were not stored are folded again. Any value but 0 requires that
	// Commit of a partition may run concurrently with the partition's other methods. 0 means that
	// folding waits for each commit.
	Checkpoint time.Duration
	Log        *slog.Logger // if nil, nothing is logged
}

// Deriver takes partitions and folds them. Create one with [New].
type Deriver struct {
	config Config
	folded atomic.Uint64

	retryLog, releaseLog lograte.Warning // for all partitions
}

// New returns a Deriver. [Deriver.Run] starts it.
func New(c Config) *Deriver {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Fold == nil {
		c.Fold = (*vehicle.State).Fold
	}
	return &Deriver{config: c}
}

// Samples returns the number of samples folded since the start.
func (d *Deriver) Samples() uint64 { return d.folded.Load() }

const retryAfter = time.Second // the pause after an error before this node takes the partition again

// newerPause is the pause before this node takes a partition again in which it has met records of a
// newer version of the service. It equals the default interval of lease renewals.
const newerPause = 2 * time.Second

// Run folds the partitions assigned to this node until the context ends. If an error ends the
// folding of a partition, Run pauses, except after [store.ErrRecalled], and takes it again. Folding
// continues from the last commit.
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
				_ = periodic.Pause(ctx, rest) // the loop ends with the context
			}
		})
	}
	running.Wait()
}

// renewAfter is how long a partition is idle before this node writes the partition's cursor again.
// If the cursor were not written again, it could become the oldest record of the stream STATES, and
// STATES drops its oldest record when it is full.
const renewAfter = time.Minute

// runPartition waits until a partition is assigned to this node, takes it, and folds it until an
// error occurs. It returns nil once the partition is assigned to another node. It then drops the
// states in memory, because another node may be the next to change them.
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
	f := newFolding(d.config.Fold)
	if err = f.load(ctx, part); err != nil {
		err = fmt.Errorf("cannot read the states of partition %d: %w", p, err)
	} else {
		err = d.foldPartition(ctx, assigned, p, part, f)
	}
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
// assigned to another node. While this node waits, it must not own p, because no other node could
// take p from a live owner. So await releases p, again and again: a Take whose response was lost
// may later have made this node the owner. It returns an error if a newer version wrote the cursor
// of p.
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

// storeWithin is the time limit for storing the folded states at the end of a node without a
// cluster. On a busy machine, 50,000 states took 1.3 s.
const storeWithin = 2 * time.Second

// foldPartition folds partition p, which this node has taken, until an error occurs. When the
// context assigned ends, it stores the folded states and returns nil.
func (d *Deriver) foldPartition(ctx, assigned context.Context, p int, part store.Partition, f *folding) error {
	// Waiting for samples ends with either context. Storing ends only with ctx.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(assigned, cancel)()
	c := checkpoints{part: part, f: f, every: d.config.Checkpoint, lingers: minLinger, backlog: part.Waiting()}
	defer c.abandon()
	for {
		wait := renewAfter
		if c.pending() {
			wait = c.holdTime() - time.Since(c.since)
			if c.done != nil {
				wait = max(wait, donePoll) // even if the next checkpoint is due
			}
		}
		idle, cancel := context.WithTimeout(waiting, wait)
		seq, samples, err := part.Next(idle)
		late := err != nil && idle.Err() != nil && ctx.Err() == nil
		cancel()
		wanted, isRequest := errors.AsType[*store.StateRequest](err)
		switch {
		case isRequest:
			wanted.Reply(f.state(wanted.Vehicle, wanted.Drop))
			err = nil
		case ctx.Err() != nil: // without the samples just read; the next start reads them again
			err = ctx.Err()
		case assigned.Err() != nil && (late || err == nil):
			return c.commit(ctx) // without the samples just read; the next owner reads them again
		case late && c.pending():
			err = c.checkpoint(ctx)
		case late:
			err = c.renew(ctx)
		case errors.Is(err, store.ErrSettle):
			err = c.checkpointNow(ctx)
		case err == nil:
			err = d.foldSamples(ctx, p, &c, seq, samples)
		}
		if err != nil && ctx.Err() != nil && d.config.Checkpoint > 0 {
			return d.storeLast(ctx, p, &c)
		}
		if err != nil {
			return err
		}
	}
}

// storeLast stores the folded states of a partition after the end of ctx, within storeWithin, so
// that the next start need not fold their samples again.
func (d *Deriver) storeLast(ctx context.Context, p int, c *checkpoints) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWithin)
	defer cancel()
	err := c.commit(last)
	if err != nil {
		d.config.Log.Warn("not all folded states were stored: the next start folds the latest telemetry again",
			"partition", p, "error", err)
	}
	return err
}

// foldSamples folds samples, and starts a checkpoint if one is due.
func (d *Deriver) foldSamples(ctx context.Context, p int, c *checkpoints, seq uint64, samples []vehicle.Sample) error {
	if most := d.config.MaxStates; most > 0 && c.pending() && c.f.changed()+len(samples) > most {
		if err := c.commit(ctx); err != nil {
			return err
		}
	}
	if !c.pending() {
		c.since = time.Now()
	}
	if err := c.f.apply(seq, c.part, samples); err != nil {
		return fmt.Errorf("partition %d: %w", p, err)
	}
	d.folded.Add(uint64(len(samples)))
	if c.backlog && !c.part.Waiting() { // so that the samples of several crashes do not add up
		c.backlog = false
		return c.checkpointNow(ctx)
	}
	if (c.every > 0 || c.part.Waiting()) && time.Since(c.since) < c.holdTime() {
		return nil // the states wait for a larger commit, which costs almost the same as a small one
	}
	return c.checkpoint(ctx)
}
