// Package derive folds telemetry into states. For every partition of this node, it reads the
// acknowledged samples in stored order, applies [Config.Fold] to each, and publishes the answers.
// It stores the states in checkpoints. The package has no rules of its own.
//
// DESIGN.md explains how.
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

// Config configures a [Deriver]. Fields are required unless their comment says more.
type Config struct {
	Partitions int
	// Fold folds a sample into the state of its vehicle, concurrently for different vehicles. again
	// says that a process may have folded it before. If nil, [vehicle.State.Fold] is used.
	Fold func(s *vehicle.State, x *vehicle.Sample, again bool) (changed bool)
	// Take is [store.Engine.Take] of this node.
	Take func(ctx context.Context, p int, owner store.Owner) (store.Partition, error)
	// Records holds the checkpoints.
	Records store.Records
	// Covers reports whether the vehicle is forgotten, and its data ignored. If nil, none is.
	Covers func(vehicle.ID) (bool, error)
	// Gone reports whether the marker of a forgotten vehicle is needed no more. If nil, none is.
	Gone func(vehicle.ID) bool
	// Loaded is called with the number of vehicles of each partition that is read. It may be nil.
	Loaded func(vehicles int)
	// Members assigns the partitions to nodes. If nil, this node has all.
	Members *Members
	// Release gives up partition p if this node owns it. It is not used without Members.
	Release func(ctx context.Context, p int) error
	// GiveUp is called when this node cannot read a partition's records of a newer version. If nodes of
	// that version are there to fold, it should end the context of Run. It may be nil.
	GiveUp func()
	// Checkpoint is the interval at which changed states are stored. 0 means 10 s.
	Checkpoint time.Duration
	// SilentDays is the number of days with telemetry after which the state of a vehicle that had none
	// is dropped. 0 means 30.
	SilentDays int
	Log        *slog.Logger // if nil, nothing is logged

	bucketBytes int // size of a bucket of packedStates; 0 means the constant
	pieceBytes  int // size of a piece; 0 means store.PieceBytes
}

type Deriver struct {
	Samples atomic.Uint64 // folded since the start

	config Config
	ending chan struct{} // limits how many partitions end at once, so that others take them in turn

	retryLog, releaseLog lograte.Warning // for all partitions
}

func New(c Config) *Deriver {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Fold == nil {
		c.Fold = func(s *vehicle.State, x *vehicle.Sample, _ bool) bool { return s.Fold(x) }
	}
	if c.Covers == nil {
		c.Covers = func(vehicle.ID) (bool, error) { return false, nil }
	}
	if c.Gone == nil {
		c.Gone = func(vehicle.ID) bool { return false }
	}
	if c.Loaded == nil {
		c.Loaded = func(int) {}
	}
	c.Checkpoint = cmp.Or(c.Checkpoint, 10*time.Second)
	c.SilentDays = cmp.Or(c.SilentDays, 30)
	c.bucketBytes = cmp.Or(c.bucketBytes, bucketBytes)
	c.pieceBytes = cmp.Or(c.pieceBytes, store.PieceBytes)
	return &Deriver{config: c, ending: make(chan struct{}, 2)}
}

const retryAfter = time.Second

const newerPause = 2 * time.Second

// Run folds the partitions assigned to this node until the context ends. After an error, it takes the
// partition again and continues from the last checkpoint.
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

// renewAfter is how long a partition is idle before its cursor is written again: the stream STATES, when
// full, drops its oldest record, which the cursor must not be.
const renewAfter = time.Minute

func (d *Deriver) runPartition(ctx context.Context, p int) error {
	assigned := context.Background()
	if d.config.Members != nil {
		var err error
		if assigned, err = d.await(ctx, p); err != nil {
			return err
		}
	}
	f := newFolding(&d.config)
	part, err := d.config.Take(ctx, p, f.reply)
	if err != nil {
		return err
	}
	defer f.end()
	defer part.Close()
	f.part = part
	if err = f.load(ctx, p); err != nil {
		err = fmt.Errorf("cannot read the states of partition %d: %w", p, err)
	} else {
		err = d.foldPartition(ctx, assigned, p, f)
	}
	if d.config.Members != nil && (ctx.Err() != nil || codec.IsNewer(err)) {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer cancel()
		if failed := d.config.Release(last, p); failed != nil {
			d.config.Log.Warn("cannot release partition: another node takes it once this node's lease is stale",
				"partition", p, "error", failed)
		}
	}
	return err
}

// await releases p again and again: a Take whose response was lost may have made this node the owner,
// and no other could take p from a live one.
func (d *Deriver) await(ctx context.Context, p int) (context.Context, error) {
	m := d.config.Members
	for released := (time.Time{}); ; {
		if assigned := m.assignment(p); assigned != nil {
			return assigned, nil
		}
		if time.Since(released) > 2*m.stale {
			err := d.config.Release(ctx, p)
			switch {
			case err == nil:
				released = time.Now()
			case codec.IsNewer(err):
				return nil, err // another node takes the partition once the lease of this node is stale
			case ctx.Err() == nil:
				d.releaseLog.Log(d.config.Log, "cannot release partition yet; will retry", "partition", p, "error", err)
			}
		}
		if err := periodic.Pause(ctx, heldPoll); err != nil {
			return nil, err
		}
	}
}

// storeWithin limits the last two checkpoints of a partition; the first has three quarters of it. Then an
// ending node has only leaveWithin, for the release.
const storeWithin = 2 * time.Second

// When ctx or assigned ends, foldPartition stores a checkpoint while it goes on folding, and then what
// changed meanwhile, so that answers wait for a moment only.
func (d *Deriver) foldPartition(ctx, assigned context.Context, p int, f *folding) error {
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	defer context.AfterFunc(assigned, leave)()
	folding, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	storing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	last, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(leaving, func() {
		time.AfterFunc(storeWithin*3/4, cancel)
		time.AfterFunc(storeWithin, end)
	})()
	var running sync.WaitGroup
	running.Go(func() { stop(f.runCheckpoints(leaving, storing, d.ending)) })
	stop(d.foldGroups(leaving, folding, f))
	if leaving.Err() == nil {
		cancel()
		leave()
		running.Wait()
		return fmt.Errorf("partition %d: %w", p, context.Cause(folding))
	}
	running.Wait()
	if _, err := f.checkpoint(last, atOnce, false, false); err != nil {
		d.config.Log.Warn("not all folded states were stored: the next start folds the latest telemetry again",
			"partition", p, "error", err)
	}
	return ctx.Err()
}

// Once leaving has ended, foldGroups waits for no follower of answers.
func (d *Deriver) foldGroups(leaving, folding context.Context, f *folding) error {
	for {
		f.goLive(leaving)
		g, err := f.part.Next(folding)
		if err == nil {
			err = f.apply(g)
		}
		if err != nil {
			return err
		}
		d.Samples.Add(uint64(len(g.Samples)))
	}
}
