package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// A short deadline yields the newest samples, because each window begins windowGrowth times as long
// ago as the one before.
const (
	firstWindow  = 10 * time.Second
	windowGrowth = 3
)

// If the context ends within a window, its samples are missing.
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

// made is the creation time of TELEMETRY, Unix ns. first is the first commit that was read, or
// until.
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
		m, meta, err := receive(ctx, sub.Subscription)
		if err != nil {
			return 0, nil, err
		}
		if meta.Sequence.Stream >= until {
			break
		}
		first = min(first, meta.Sequence.Stream)
		body, err := unpackCommit(m)
		if err != nil {
			return 0, nil, err
		}
		if !bytes.Contains(body, []byte(id)) {
			continue // far cheaper than decoding all samples of the commit
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
