package local

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Recent implements [store.Engine]: it returns the newest retained samples of a vehicle. Telemetry
// is stored by partition and not by vehicle, so Recent reads the telemetry of the whole partition,
// newest first. It stops when it has found at least as many samples as the parameter most says.
func (e *Engine) Recent(ctx context.Context, id vehicle.ID, most int) (found store.Recent, err error) {
	found.Since = e.now()
	p := codec.PartitionOf(id, e.dir.Partitions)
	lower, upper := telemetrySpan(p, 0)
	it, err := e.viewIter(lower, upper)
	if err != nil {
		return found, fmt.Errorf("cannot read the retained telemetry: %w", err)
	}
	defer it.Close()
	ok := it.Last()
	for ; ok && ctx.Err() == nil && len(found.Samples) < most; ok = it.Prev() {
		value, err := it.ValueAndErr()
		if err != nil {
			return found, fmt.Errorf("cannot read the retained telemetry: %w", it.explain(err))
		}
		if len(value) >= timeBytes {
			found.Since = minTime(found.Since, storedAt(value))
		}
		if !bytes.Contains(value, []byte(id)) {
			continue // far cheaper than decoding the samples of other vehicles
		}
		g, err := decodeGroup(p, it.Key(), value)
		if err != nil {
			return found, fmt.Errorf("cannot read the retained telemetry: %w", it.explain(err))
		}
		for _, x := range g.samples {
			if x.Vehicle == id && !e.forgotten.Covers(id, g.seq, e.dir.Made) {
				found.Samples = append(found.Samples, x)
			}
		}
	}
	if err := it.Error(); err != nil {
		return found, fmt.Errorf("cannot read the retained telemetry: %w", it.explain(err))
	}
	if found.All = !ok && ctx.Err() == nil; found.All {
		found.Since = minTime(found.Since, e.now().Add(-e.config.Retention))
	}
	slices.SortStableFunc(found.Samples, func(a, b vehicle.Sample) int { return int(a.Time - b.Time) })
	return found, nil
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
