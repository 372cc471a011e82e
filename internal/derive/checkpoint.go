package derive

import (
	"context"
	"math"
	"sync"
	"time"

	"example.org/carstate/internal/store"
)

// minLinger and maxLinger limit how long folded states wait for a larger commit if
// Config.Checkpoint is 0, while more samples are ready to be folded: as long as the previous commit
// took. So answers, which wait for the commit, are fast if commits are, and a vehicle with many
// samples in a backlog is stored only once.
const (
	maxLinger = 100 * time.Millisecond
	minLinger = 2 * time.Millisecond
)

// sliceStates is the least number of states in one slice of a checkpoint; a slice has whole
// buckets. Telemetry that arrives meanwhile is acknowledged after at most one slice, about 400 KB.
const sliceStates = 256

// donePoll is the interval at which a partition checks whether its checkpoint in progress is
// stored. The partition checks only while the next checkpoint is already due and no samples arrive.
const donePoll = 5 * time.Millisecond

// checkpoints stores the folded states of a partition in checkpoints. If every is not 0, it stores
// the states of a checkpoint in slices, spread over half of the interval, while folding continues:
// a slice has the states as they are when it is stored. Only the end of the checkpoint moves the
// cursor, to where folding was at its begin. If the node crashes before that, the stored states say
// which samples since the cursor are folded into them already.
type checkpoints struct {
	part    store.Partition
	f       *folding
	every   time.Duration // interval; if 0, folding waits for each commit
	lingers time.Duration // wait for a larger commit if every is 0
	backlog bool          // samples have waited since the take
	begun   uint64        // sequence up to which the last checkpoint covers the samples
	since   time.Time     // time of the oldest fold after that

	done  chan error         // receives the result of the checkpoint in progress; nil if there is none
	hurry func()             // skips the remaining pauses of the checkpoint in progress
	stop  context.CancelFunc // aborts the checkpoint in progress
}

// holdTime returns how long folded states wait, so that more states are stored together.
func (c *checkpoints) holdTime() time.Duration { return max(c.lingers, c.every) }

// pending reports whether samples were folded after the begin of the last checkpoint.
func (c *checkpoints) pending() bool { return c.f.seq > c.begun }

// checkpoint starts to store the folded states, if there are any, and returns at once. If the
// previous checkpoint is still in progress, checkpoint does not start another. If the previous
// checkpoint has failed, checkpoint returns its error. If every is 0, checkpoint returns only once
// the states are stored.
func (c *checkpoints) checkpoint(ctx context.Context) error {
	if c.done != nil {
		select {
		case err := <-c.done:
			if err := c.finish(err); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	if !c.pending() {
		return nil
	}
	c.begun = c.f.seq
	hurried := make(chan struct{})
	c.hurry = sync.OnceFunc(func() { close(hurried) })
	storing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	c.done, c.stop = done, stop
	start, begun := time.Now(), c.begun
	go func() { done <- c.store(storing, begun, hurried) }()
	if c.every > 0 {
		return nil
	}
	err := c.settle(ctx)
	c.lingers = min(max(time.Since(start), minLinger), maxLinger)
	return err
}

// checkpointNow starts to store the folded states without pauses, or makes the checkpoint in
// progress skip its own.
func (c *checkpoints) checkpointNow(ctx context.Context) error {
	err := c.checkpoint(ctx)
	if c.done != nil {
		c.hurry()
	}
	return err
}

// store stores one checkpoint of the samples up to the sequence begun. Between its slices, it
// pauses until hurried is closed. If every is 0, there is a single slice. If a Commit fails, or ctx
// ends during a pause, it returns the error; the slices before that remain stored.
func (c *checkpoints) store(ctx context.Context, begun uint64, hurried <-chan struct{}) error {
	half, changed, least := c.every/2, c.f.changed(), sliceStates
	if c.every == 0 {
		least = math.MaxInt
	}
	for next := 0; ; {
		seq, states, after, more := c.f.take(next, least)
		next = after
		ahead := more || seq > begun
		if err := c.part.Commit(ctx, seq, states, ahead); err != nil || !ahead {
			return err
		}
		if !more {
			return c.part.Commit(ctx, begun, nil, false)
		}
		select {
		case <-time.After(half * time.Duration(len(states)) / time.Duration(max(changed, len(states)))):
		case <-hurried:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// finish ends the checkpoint in progress and returns err, the result of storing it.
func (c *checkpoints) finish(err error) error {
	c.stop()
	c.done = nil
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
	for _, do := range []func(context.Context) error{c.settle, c.checkpoint, c.settle} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
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
