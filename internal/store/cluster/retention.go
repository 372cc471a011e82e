package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
)

// view is what this node knows of a partition.
type view struct {
	taken  atomic.Pointer[Partition] // nil unless this node has taken it
	cursor atomic.Pointer[cursor]
	folded atomic.Uint64             // the owner has folded up to here
	heard  atomic.Pointer[time.Time] // when the owner last told folded

	lackSince atomic.Pointer[time.Time] // nil if its answers are complete

	// In seen, what is in no checkpoint counts as unfolded; in folding, what the owner has not
	// folded yet.
	seen, folding firstUnfolded
}

// firstUnfolded caches a lookup until the stream or cursor changes.
type firstUnfolded struct {
	made   time.Time
	cursor uint64 // first sequence that counts as not folded
	end    uint64
	first  uint64 // sequence of the first commit that is not folded; 0 if there is none
	stored time.Time
}

func (w *firstUnfolded) find(ctx context.Context, s jetstream.Stream, p int, from uint64) error {
	info := s.CachedInfo()
	stays := w.first >= info.State.FirstSeq && w.first != 0 || w.first == 0 && w.end == info.State.LastSeq
	if stays && w.cursor == from && w.made.Equal(info.Created) {
		return nil
	}
	m, err := firstCommit(ctx, s, p, from)
	if err != nil {
		return err
	}
	*w = firstUnfolded{made: info.Created, cursor: from, end: info.State.LastSeq}
	if m != nil {
		w.first, w.stored = m.Sequence, m.Time
	}
	return nil
}

// A node shows the backlogs of its own partitions, and of those whose owners tell nothing.
func (e *Engine) showsBacklog(p int, age time.Duration) bool {
	if t := e.views[p].taken.Load(); t != nil && t.owned.Err() == nil {
		return true
	}
	heard := e.views[p].heard.Load()
	return age > 0 && (heard == nil || time.Since(*heard) > e.config.Timeouts.Lease)
}

func (e *Engine) watchBacklog(ctx context.Context) {
	alarmed := make(map[string]bool)
	for range periodic.NowAndEvery(ctx, 2*time.Second) {
		if err := errors.Join(e.measureBacklog(ctx), e.watchLimits(ctx, alarmed)); err != nil && ctx.Err() == nil {
			e.warned.streams.Log(e.config.Log, "cannot measure the backlog or the streams", "error", err)
		}
	}
}

func firstCommit(ctx context.Context, s jetstream.Stream, p int, from uint64) (*jetstream.RawStreamMsg, error) {
	m, err := s.GetMsg(ctx, max(from, 1), jetstream.WithGetMsgSubject(codec.TelemetrySubject(p)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

func (e *Engine) measureBacklog(ctx context.Context) error {
	e.measuring.Lock()
	defer e.measuring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if !e.cursorsRead.Load() {
		return nil
	}
	var unsaved time.Duration
	var bytes uint64 // unfolded, of the stream that has the most
	cursors, folded := make([]cursor, e.partitions), make([]uint64, e.partitions)
	for i := range e.streams {
		// Cursors are read before the stream's end, so one beyond the end is of another stream, or
		// the end was lost. A cursor that is too old only makes some samples seem unfolded.
		for p := i; p < e.partitions; p += e.streams {
			folded[p] = e.views[p].folded.Load()
			if c := e.views[p].cursor.Load(); c != nil {
				cursors[p] = *c
			}
		}
		s, err := e.js.Stream(ctx, e.TelemetryStream(i))
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		state, now := info.State, info.TimeStamp // the server's clock, which also stamped the commits
		end := state.LastSeq + 1
		needed, unfolded := uint64(math.MaxUint64), end
		for p := i; p < e.partitions; p += e.streams {
			v, c, age := &e.views[p], cursors[p], time.Duration(0)
			if c.newer {
				needed = 0 // unknown, so this node removes no telemetry
				e.metrics.Backlogs[p].Store(0)
				continue
			}
			if isReplaced(info, c.Made, c.Next) {
				c.Next = 0 // nothing counts as folded, as in Take
			}
			w, next := &v.seen, max(c.Next, end)
			if err := w.find(ctx, s, p, c.Next); err != nil {
				return err
			}
			if w.first != 0 {
				next, unsaved = w.first, max(unsaved, now.Sub(w.stored))
				if from := folded[p] + 1; from > c.Next && from <= end {
					w = &v.folding
					if err := w.find(ctx, s, p, from); err != nil {
						return err
					}
				}
			}
			if w.first != 0 {
				age = max(0, now.Sub(w.stored))
			}
			needed, unfolded = min(needed, next), min(unfolded, next)
			e.metrics.Backlogs[p].Store(int64(age))
		}
		e.needed[i].Store(needed)
		// Commits have similar sizes.
		bytes = max(bytes, state.Bytes/max(1, state.Msgs)*min(end-unfolded, state.Msgs))
	}
	over := unsaved > e.config.Retention/2 || bytes > uint64(e.config.TelemetryBytes)/2/uint64(e.streams)
	if e.backlogged.Swap(over) != over {
		e.config.Log.Warn("backlog", "refusing_samples", over, "oldest", unsaved, "bytes", bytes)
	}
	return nil
}

const trimEvery = 10 * time.Second

// Trim replaces an age limit of NATS, which would drop unfolded samples after an outage longer than
// the retention.
func (e *Engine) Trim(ctx context.Context) {
	for range periodic.Every(ctx, trimEvery) {
		if e.Alive() != nil {
			return // this node's data may be that of streams that no longer exist
		}
		for i := range e.streams {
			if err := e.trim(ctx, i); err != nil && ctx.Err() == nil {
				e.config.Log.Warn("cannot remove old telemetry", "stream", e.TelemetryStream(i), "error", err)
			}
		}
	}
}

func (e *Engine) trim(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, trimEvery)
	defer cancel()
	s, err := e.js.Stream(ctx, e.TelemetryStream(i))
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	state, now := info.State, info.TimeStamp
	folded := e.needed[i].Load()
	if folded == 0 || state.Msgs == 0 {
		return nil
	}
	upTo := state.LastSeq + 1
	for young, err := range e.read(ctx, info.Config.Name, nats.StartTime(now.Add(-e.config.Retention)), nats.HeadersOnly()) {
		if err != nil {
			return fmt.Errorf("NATS does not say which telemetry is the oldest: %w", err)
		}
		upTo = young.seq()
		break
	}
	upTo = min(max(upTo, overBytes(state, e.config.TelemetryBytes/int64(e.streams))), folded)
	if upTo <= state.FirstSeq {
		return nil
	}
	return s.Purge(ctx, jetstream.WithPurgeSequence(upTo))
}

func (e *Engine) Ends(ctx context.Context, stream string) (ends []uint64, err error) {
	for i := range e.configs {
		name := e.configs[i].Name
		if name != stream && !(isTelemetry(stream) && isTelemetry(name)) {
			continue
		}
		s, err := e.js.Stream(ctx, name)
		if err != nil {
			return nil, err
		}
		ends = append(ends, s.CachedInfo().State.LastSeq)
	}
	return ends, nil
}

func (e *Engine) TrimTo(ctx context.Context, ends []uint64) (gone bool, err error) {
	gone = true
	for i, end := range ends {
		s, err := e.js.Stream(ctx, e.TelemetryStream(i))
		if err != nil {
			return false, err
		}
		folded := e.needed[i%e.streams].Load()
		if upTo := min(end+1, folded); upTo > s.CachedInfo().State.FirstSeq {
			err = s.Purge(ctx, jetstream.WithPurgeSequence(upTo))
		}
		if err != nil {
			return false, err
		}
		gone = gone && folded > end
	}
	return gone, nil
}

// overBytes returns 0 below 80 % of limit, and else the sequence from which about 60 % remain.
func overBytes(state jetstream.StreamState, limit int64) uint64 {
	if state.Bytes < uint64(limit)/10*8 {
		return 0
	}
	excess := state.Bytes - uint64(limit)/10*6
	return state.FirstSeq + excess/max(1, state.Bytes/state.Msgs)
}

// The leader counts as present, because it has answered.
func copiesMissing(info *jetstream.StreamInfo) int {
	copies := 1
	if info.Cluster != nil {
		for _, r := range info.Cluster.Replicas {
			if r.Current && !r.Offline {
				copies++
			}
		}
	}
	return max(0, info.Config.Replicas-copies)
}

// in percent of the limit; the alarm can come again only below fullOver
const (
	fullAlarm = 80
	// From reservedFrom on (64 MB are left in AUDIT, TOKENS or SOURCES), only rights are taken
	// away; in STATES, no checkpoint is stored.
	reservedFrom = 94
	fullOver     = 75
)

// Telemetry raises no alarm, because it fills and is trimmed all the time. alarmed has the streams
// for which the error was logged.
func (e *Engine) watchLimits(ctx context.Context, alarmed map[string]bool) error {
	scarce := false
	for i := range e.configs {
		name := e.configs[i].Name
		s, err := e.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		e.metrics.Fills(name, info.State.Bytes, uint64(info.Config.MaxBytes))
		e.records.WithLabelValues(name).Set(float64(info.State.Msgs))
		e.missing.WithLabelValues(name).Set(float64(copiesMissing(info)))
		percent := info.State.Bytes * 100 / uint64(info.Config.MaxBytes)
		refuses := name == codec.Audit || name == codec.Tokens || name == codec.Sources
		scarce = scarce || refuses && percent >= reservedFrom
		if name == codec.States {
			e.room.Store(info.Config.MaxBytes/100*reservedFrom - int64(info.State.Bytes))
		}
		switch {
		case percent >= fullAlarm && !alarmed[name] && !isTelemetry(name):
			alarmed[name] = true
			e.config.Log.Error("a stream is filling up",
				"stream", name, "percent", percent, "limit_bytes", info.Config.MaxBytes)
		case percent < fullOver:
			delete(alarmed, name)
		}
	}
	e.scarce.Store(scarce)
	return nil
}
