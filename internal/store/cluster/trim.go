package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store/codec"
	"carstate/internal/ticks"
)

const trimEvery = 10 * time.Second

// Trim removes telemetry that is both folded and older than the retention, and
// the oldest folded telemetry when the stream's bytes run short, until the
// context ends or the engine fails. Nodes that derive run it.
//
// An age limit of the engine's own would not do: after an outage longer than
// the retention it would drop samples that were acknowledged and never folded.
func (e *Engine) Trim(ctx context.Context) {
	for range ticks.Every(ctx, trimEvery) {
		if e.Alive() != nil {
			return // what it knows may be of streams that are no more
		}
		if err := e.trim(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("old telemetry cannot be removed", "error", err)
		}
	}
}

func (e *Engine) trim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trimEvery)
	defer cancel()
	s, err := e.js.Stream(ctx, codec.Telemetry)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	state, now := info.State, info.TimeStamp // of the server, which stamped the commits too
	folded := e.backlog.folded()
	if folded == 0 || state.Msgs == 0 {
		return nil
	}
	upTo, err := e.firstSince(ctx, now.Add(-e.config.Retention))
	if err != nil {
		return err
	}
	if upTo == 0 {
		upTo = state.LastSeq + 1
	}
	upTo = min(max(upTo, overBytes(state, e.config.TelemetryBytes)), folded)
	if upTo <= state.FirstSeq {
		return nil
	}
	return s.Purge(ctx, jetstream.WithPurgeSequence(upTo))
}

// overBytes is the sequence before which commits must go so that the stream
// fills 60 % of its limit again, once it fills 80 %.
func overBytes(state jetstream.StreamState, limit int64) uint64 {
	if state.Bytes < uint64(limit)/10*8 {
		return 0
	}
	excess := state.Bytes - uint64(limit)/10*6
	return state.FirstSeq + excess/max(1, state.Bytes/state.Msgs)
}

// firstSince finds the first commit stored at t or later; 0 if there is none.
func (e *Engine) firstSince(ctx context.Context, t time.Time) (uint64, error) {
	sub, err := e.legacy.SubscribeSync("telemetry.*", nats.OrderedConsumer(), nats.BindStream(codec.Telemetry),
		nats.StartTime(t), nats.HeadersOnly(), nats.IdleHeartbeat(e.config.Timeouts.Idle))
	if err != nil {
		return 0, err
	}
	defer sub.Unsubscribe()
	pending, err := sub.InitialConsumerPending()
	if err != nil || pending == 0 {
		return 0, err
	}
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return 0, errors.Join(errors.New("no answer about the oldest telemetry"), err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	return meta.Sequence.Stream, nil
}
