package derive

import (
	"context"
	"sync"
	"time"

	"carstate/internal/store"
	"carstate/internal/vehicle"
)

// Without a checkpoint interval, states wait for more to be committed with them while more
// samples are there to be folded, for as long as the commit before took: folding then keeps
// pace with storing. When commits are quick, no answer waits long; when there is a backlog,
// a vehicle that is in it many times is stored once. linger bounds the wait, so that a few
// vehicles that never fall silent still become answers.
const (
	linger      = 100 * time.Millisecond
	leastLinger = 2 * time.Millisecond
)

// sliceStates is how many states of a checkpoint are stored at once. The telemetry that is
// acknowledged meanwhile waits for no more than these, about 200 KB, to reach the disk.
const sliceStates = 256

// doneAgain is how soon an idle partition looks again whether the checkpoint before is
// stored, if the next is due.
const doneAgain = 5 * time.Millisecond

// checkpoints stores what is folded of a partition. With an interval, a checkpoint is stored
// in slices, spread over half of the interval, while folding goes on. Its states are ahead of
// the partition's cursor until the last slice, which moves the cursor too. A crash before
// that leaves samples that are folded once more, which changes nothing.
type checkpoints struct {
	part    store.Partition
	f       *folding
	every   time.Duration // 0: folding waits for each commit
	lingers time.Duration // how long states wait for others if every is 0
	since   time.Time     // of the oldest fold that no commit has

	done  chan error         // gets the result of the checkpoint under way; nil: none is
	hurry func()             // ends its pauses
	stop  context.CancelFunc // ends it
}

// hold is how long folded states wait until they are stored together.
func (c *checkpoints) hold() time.Duration { return max(c.lingers, c.every) }

// least is the least time for which samples are waited for while states are to be stored.
func (c *checkpoints) least() time.Duration {
	if c.done != nil {
		return doneAgain
	}
	return 0
}

// checkpoint begins to store what is folded. If the checkpoint before is still being
// stored, nothing happens, but that one hurries if too many states wait for the next.
func (c *checkpoints) checkpoint(ctx context.Context) error {
	if c.every == 0 {
		return c.commit(ctx)
	}
	if c.done != nil {
		select {
		case err := <-c.done:
			if err := c.finish(err); err != nil {
				return err
			}
		default:
			if len(c.f.touched) > c.f.limit/2 {
				c.hurry()
			}
			return nil
		}
	}
	seq, states := c.f.begin()
	hurried := make(chan struct{})
	c.hurry = sync.OnceFunc(func() { close(hurried) })
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	c.done = done
	go func() { done <- c.store(ctx, seq, states, hurried) }()
	return nil
}

// makeRoom begins to store what is folded, so that as much again can be folded.
func (c *checkpoints) makeRoom(ctx context.Context) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.checkpoint(ctx)
}

// store stores a checkpoint.
func (c *checkpoints) store(ctx context.Context, seq uint64, states map[vehicle.ID]*vehicle.State, hurried <-chan struct{}) error {
	slice, left := make(map[vehicle.ID]*vehicle.State, sliceStates), len(states)
	pause := c.every / 2 * sliceStates / time.Duration(max(left, sliceStates))
	for id, s := range states {
		slice[id] = s
		if left--; len(slice) < sliceStates || left == 0 {
			continue
		}
		if err := c.part.Commit(ctx, 0, slice); err != nil {
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
	return c.part.Commit(ctx, seq, slice)
}

// finish takes the result of the checkpoint under way.
func (c *checkpoints) finish(err error) error {
	c.stop()
	c.done = nil
	if err == nil {
		c.f.finish()
	}
	return err
}

// settle waits for the checkpoint under way.
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

// commit returns once all that is folded is stored.
func (c *checkpoints) commit(ctx context.Context) error {
	if err := c.settle(ctx); err != nil || c.f.seq == 0 {
		return err
	}
	start := time.Now()
	seq, states := c.f.begin()
	if err := c.part.Commit(ctx, seq, states); err != nil {
		return err
	}
	if c.every == 0 {
		c.lingers = min(max(time.Since(start), leastLinger), linger)
	}
	c.f.finish()
	return nil
}

// renew commits the cursor again.
func (c *checkpoints) renew(ctx context.Context) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.part.Commit(ctx, 0, nil)
}

// abandon ends the checkpoint under way, if there is one, as a crash would.
func (c *checkpoints) abandon() {
	if c.done != nil {
		c.stop()
		_ = c.finish(<-c.done) // whoever folds next reads what was stored
	}
}
