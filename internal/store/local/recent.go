package local

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

func (e *Engine) Recent(ctx context.Context, id vehicle.ID, most int) (found store.Recent, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot read the retained telemetry: %w", err)
		}
	}()
	found.Since = e.now()
	since := func(t time.Time) {
		if t.Before(found.Since) {
			found.Since = t
		}
	}
	p := codec.PartitionOf(id, e.dir.Partitions)
	it, err := e.view().iterator(telemetrySpan(p, 0))
	if err != nil {
		return found, err
	}
	defer it.Close()
	ok := it.Last()
	for ; ok && ctx.Err() == nil && len(found.Samples) < most; ok = it.Prev() {
		value, err := it.ValueAndErr()
		if err != nil {
			return found, it.r.explain(err)
		}
		if len(value) >= timeBytes {
			since(storedAt(value))
		}
		if !bytes.Contains(value, []byte(id)) {
			continue // far cheaper than decoding the samples of other vehicles
		}
		g, err := decodeGroup(p, it.Key(), value)
		if err != nil {
			return found, it.r.explain(err)
		}
		for _, x := range g.samples {
			if x.Vehicle == id && !e.forgotten.Covers(id, g.seq, e.dir.Made) {
				found.Samples = append(found.Samples, x)
			}
		}
	}
	if err := it.Error(); err != nil {
		return found, it.r.explain(err)
	}
	if found.All = !ok && ctx.Err() == nil; found.All {
		since(e.now().Add(-e.config.Retention))
	}
	slices.SortStableFunc(found.Samples, func(a, b vehicle.Sample) int { return int(a.Time - b.Time) })
	return found, nil
}
