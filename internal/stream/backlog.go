package stream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/ticks"
)

// backlog is what was stored but not folded, looked at every backlogEvery. When
// it passes half of the retention or half of the byte limit, nothing more is
// taken in, so that no limit can ever drop what was acknowledged.
type backlog struct {
	oldest atomic.Int64 // age of the oldest commit not folded, ns
	over   atomic.Bool
	next   []atomic.Uint64 // by partition: first sequence not folded, as last seen
}

const backlogEvery = 2 * time.Second

func (b *backlog) init(partitions int) { b.next = make([]atomic.Uint64, partitions) }

func (b *backlog) err() error {
	if b.over.Load() {
		return ErrBacklog
	}
	return nil
}

func (b *backlog) age() time.Duration { return time.Duration(b.oldest.Load()) }

// folded is the first sequence of TELEMETRY that some partition still needs, or
// 0 if that is not known for every partition.
func (b *backlog) folded() uint64 {
	first := uint64(0)
	for p := range b.next {
		n := b.next[p].Load()
		if n == 0 {
			return 0
		}
		if first == 0 || n < first {
			first = n
		}
	}
	return first
}

// watchBacklog keeps the backlog's figures, and an eye on the other streams'
// limits, until the context ends.
func (e *Engine) watchBacklog(ctx context.Context) {
	alarmed := make(map[string]bool)
	for range ticks.NowAndEvery(ctx, backlogEvery) {
		if err := e.measureBacklog(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("the backlog cannot be measured", "error", err)
		}
		if err := e.watchLimits(ctx, alarmed); err != nil && ctx.Err() == nil {
			e.log.Warn("the streams' limits cannot be looked at", "error", err)
		}
	}
}

// firstCommit asks the stream's leader for a partition's first commit at or
// after a sequence; nil if there is none.
func firstCommit(ctx context.Context, s jetstream.Stream, p int, from uint64) (*jetstream.RawStreamMsg, error) {
	m, err := s.GetMsg(ctx, max(from, 1), jetstream.WithGetMsgSubject(telemetrySubject(p)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

func (e *Engine) measureBacklog(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := e.js.Stream(ctx, Telemetry)
	if err != nil {
		return err
	}
	state := s.CachedInfo().State
	var oldest time.Duration
	unfolded := state.LastSeq + 1
	for p := range e.partitions {
		c, _, err := e.readCursor(ctx, p)
		if err != nil {
			return err
		}
		if c.Next > state.LastSeq+1 || c.Made != s.CachedInfo().Created.UnixNano() {
			c.Next = 0 // as Take will: nothing counts as folded
		}
		// What comes first for the partition after its cursor?
		m, err := firstCommit(ctx, s, p, c.Next)
		switch {
		case err == nil && m == nil:
			// Everything there was is folded. Nothing before the end
			// that we saw when we asked is needed any more.
			e.backlog.next[p].Store(max(c.Next, state.LastSeq+1))
		case err != nil:
			return err
		default:
			e.backlog.next[p].Store(m.Sequence)
			unfolded = min(unfolded, m.Sequence)
			oldest = max(oldest, e.now().Sub(m.Time))
		}
	}
	// Commits are alike enough for their bytes to be counted by number.
	var bytes uint64
	if n := state.LastSeq + 1 - unfolded; n > 0 && state.Msgs > 0 {
		bytes = state.Bytes / state.Msgs * min(n, state.Msgs)
	}
	over := oldest > e.config.Retention/2 || bytes > uint64(e.config.TelemetryBytes)/2
	e.backlog.oldest.Store(int64(oldest))
	if e.backlog.over.Swap(over) != over {
		e.log.Warn("backlog", "refusing_samples", over, "oldest", oldest, "bytes", bytes)
	}
	return nil
}
