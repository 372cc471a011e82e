package derive

import (
	"context"
	"sync"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

// minLinger and maxLinger limit how long folded states wait for a larger commit if
// Config.Checkpoint is 0, while more samples are ready to be folded: as long as the previous commit
// took. So answers, which wait for the commit, are fast if commits are, and a vehicle with many
// samples in a backlog is stored only once.
const (
	maxLinger = 100 * time.Millisecond
	minLinger = 2 * time.Millisecond
)

// sliceStates is the number of states in one slice of a checkpoint. If telemetry arrives during a
// checkpoint, its acknowledgement waits until at most one slice, about 200 KB, is on the disk.
const sliceStates = 256

// donePoll is the interval at which a partition checks whether its checkpoint in progress is
// stored. The partition checks only while the next checkpoint is already due and no samples arrive.
const donePoll = 5 * time.Millisecond

// checkpoints stores the folded states of a partition in checkpoints. If every is not 0, it stores
// the states of a checkpoint in slices, spread over half of the interval, while folding continues.
// Only the last slice moves the cursor. If the node crashes before that, the stored states say that
// the samples since the cursor are folded into them already.
type checkpoints struct {
	part    store.Partition
	f       *folding
	every   time.Duration // interval; if 0, folding waits for each commit
	lingers time.Duration // wait for a larger commit if every is 0
	since   time.Time     // time of the oldest fold that is not in a commit

	done  chan error         // receives the result of the checkpoint in progress; nil if there is none
	hurry func()             // skips the remaining pauses of the checkpoint in progress
	stop  context.CancelFunc // aborts the checkpoint in progress
}

// holdTime returns how long folded states wait, so that more states are stored together.
func (c *checkpoints) holdTime() time.Duration { return max(c.lingers, c.every) }

// checkpoint starts to store the folded states, if there are any, and returns at once. If the
// previous checkpoint is still in progress, checkpoint does not start another; if the states that
// wait are more than half of the maximum (folding.maxTouched), it makes the one in progress skip
// its pauses. If the previous checkpoint has failed, checkpoint returns its error. If every is 0,
// checkpoint returns only once the states are stored.
func (c *checkpoints) checkpoint(ctx context.Context) error {
	if c.done != nil {
		select {
		case err := <-c.done:
			if err := c.finish(err); err != nil {
				return err
			}
		default:
			if len(c.f.touched) > c.f.maxTouched/2 {
				c.hurry()
			}
			return nil
		}
	}
	if c.f.seq == 0 {
		return nil
	}
	seq, states := c.f.begin()
	hurried := make(chan struct{})
	c.hurry = sync.OnceFunc(func() { close(hurried) })
	storing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	c.done, c.stop = done, stop
	start := time.Now()
	go func() { done <- c.store(storing, seq, states, hurried) }()
	if c.every > 0 {
		return nil
	}
	err := c.settle(ctx)
	c.lingers = min(max(time.Since(start), minLinger), maxLinger)
	return err
}

// checkpointNow starts to store the folded states without pauses, or makes the checkpoint in progress
// skip its own.
func (c *checkpoints) checkpointNow(ctx context.Context) error {
	err := c.checkpoint(ctx)
	if c.done != nil {
		c.hurry()
	}
	return err
}

// makeRoom waits until the checkpoint in progress is stored, and then starts a checkpoint of all
// folded states. Afterwards folding.touched is empty, so other vehicles can be folded.
func (c *checkpoints) makeRoom(ctx context.Context) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.checkpoint(ctx)
}

// store stores one checkpoint in slices. It pauses between the slices until hurried is closed. If
// every is 0, there is a single slice. If a Commit fails, or ctx ends during a pause, it returns
// the error; the slices before that remain stored.
func (c *checkpoints) store(
	ctx context.Context, seq uint64, states map[vehicle.ID]*vehicle.State, hurried <-chan struct{},
) error {
	if c.every == 0 {
		return c.part.Commit(ctx, seq, states, false)
	}
	slice, left := make(map[vehicle.ID]*vehicle.State, sliceStates), len(states)
	pause := c.every / 2 * sliceStates / time.Duration(max(left, sliceStates))
	for id, s := range states {
		slice[id] = s
		if left--; len(slice) < sliceStates || left == 0 {
			continue
		}
		if err := c.part.Commit(ctx, seq, slice, true); err != nil {
			return err
		}
		clear(slice)
		select {
		case <-time.After(pause):
		case <-hurried:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.part.Commit(ctx, seq, slice, false)
}

// finish ends the checkpoint in progress and returns err, the result of storing it.
func (c *checkpoints) finish(err error) error {
	c.stop()
	c.done = nil
	if err == nil {
		c.f.finish()
	}
	return err
}

// settle waits until the checkpoint in progress, if there is one, is stored, and makes it skip its
// pauses. If ctx ends first, the checkpoint stays in progress.
func (c *checkpoints) settle(ctx context.Context) error {
	if c.done == nil {
		return nil
	}
	c.hurry()
	select {
	case err := <-c.done:
		return c.finish(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commit stores all folded states, and returns once they are stored.
func (c *checkpoints) commit(ctx context.Context) error {
	if err := c.makeRoom(ctx); err != nil {
		return err
	}
	return c.settle(ctx)
}

// renew stores the cursor again, unchanged. It first waits until the checkpoint in progress is
// stored.
func (c *checkpoints) renew(ctx context.Context) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.part.Commit(ctx, 0, nil, false)
}

// abandon aborts the checkpoint in progress, if there is one. The samples of states that were not
// stored are folded again later, as after a crash.
func (c *checkpoints) abandon() {
	if c.done != nil {
		c.stop()
		_ = c.finish(<-c.done) // the next owner reads from the store what was stored
	}
}
