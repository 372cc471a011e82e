package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// The samples of a vehicle are stored among those of its whole partition. They are searched in
// windows of time, from the newest window to the oldest. Each window is longer than the previous
// one. So even a short deadline yields the newest samples.
const (
	firstWindow  = 10 * time.Second
	windowGrowth = 3
)

// Recent reads the retained samples of a vehicle, beginning with the newest, and returns them in
// the order of their times. It stops when it has all of them, or at least as many as the parameter
// most says, or when the context ends, which is no error. If the context ends within a window, the
// samples of that window are omitted.
func (e *Engine) Recent(ctx context.Context, id vehicle.ID, most int) (store.Recent, error) {
	s, err := e.js.Stream(ctx, codec.Telemetry)
	if ctx.Err() != nil {
		return store.Recent{Since: e.now()}, nil
	}
	if err != nil {
		return store.Recent{}, fmt.Errorf("cannot read the retained telemetry: %w", err)
	}
	state, made, now := s.CachedInfo().State, s.CachedInfo().Created.UnixNano(), e.now()
	found, until := store.Recent{Since: now}, state.LastSeq+1
	for span := firstWindow; ; span *= windowGrowth {
		from := now.Add(-span)
		first, samples, err := e.window(ctx, id, from, until, made)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return store.Recent{}, fmt.Errorf("cannot read the retained telemetry: %w", err)
		}
		found.Samples, found.Since, until = append(found.Samples, samples...), from, first
		if found.All = state.Msgs == 0 || !from.After(state.FirstTime); found.All || len(found.Samples) >= most {
			break
		}
	}
	slices.SortStableFunc(found.Samples, func(a, b vehicle.Sample) int { return int(a.Time - b.Time) })
	return found, nil
}

// window reads one window: the vehicle's samples that were stored at or after the time of the
// parameter from, in commits with sequences below the parameter until. made is when the stream was
// created. Samples that a tombstone covers are omitted. first is the sequence at which the window
// begins.
func (e *Engine) window(
	ctx context.Context, id vehicle.ID, from time.Time, until uint64, made int64,
) (first uint64, found []vehicle.Sample, err error) {
	sub, err := e.readTelemetry(codec.TelemetrySubject(codec.PartitionOf(id, e.partitions)), nats.StartTime(from))
	if err != nil {
		return 0, nil, err
	}
	defer sub.Unsubscribe()
	pending, err := sub.InitialConsumerPending()
	if err != nil {
		return 0, nil, err
	}
	first = until
	for range pending {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return 0, nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return 0, nil, err
		}
		if meta.Sequence.Stream >= until {
			break
		}
		first = min(first, meta.Sequence.Stream)
		if !bytes.Contains(m.Data, []byte(id)) {
			continue // far cheaper than decoding all samples of the commit
		}
		body, err := codec.Unseal(m.Subject, m.Data)
		if err != nil {
			return 0, nil, err
		}
		err = codec.DecodeSamples(body, func(x vehicle.Sample) {
			if x.Vehicle == id && !e.forgotten.Covers(id, meta.Sequence.Stream, made) {
				found = append(found, x)
			}
		})
		if err != nil {
			return 0, nil, err
		}
	}
	return first, found, nil
}
