package nodes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/internal/store"
	"carstate/internal/vehicle"
)

// compare compares the acknowledged readings with the stored data and with the answers of the
// nodes. It must be called after the cars have stopped reporting.
func (s *system) compare(ctx context.Context) {
	acked := s.load.Newest()
	s.promise(ctx, settleWithin, "in the end", func() error { return s.follow.reached(acked) })
	for i, n := range s.nodes {
		for id, at := range acked {
			err := n.AwaitAnswer(ctx, settleWithin, s.token, string(id), at.Time())
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.a.Lost("node %d does not answer for the newest reading of %s, of %s: %v", i, id, at.Time().Format(time.TimeOnly),
					err)
			}
		}
	}
	for _, id := range layout.All() {
		var stored store.Recent
		var state vehicle.State
		// The cluster may still be electing a leader.
		must.Do(nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) (err error) {
			if stored, err = s.engine.Recent(ctx, id, math.MaxInt); err == nil && !stored.All {
				err = errors.New("the telemetry was not read to its beginning")
			}
			if err != nil {
				return err
			}
			var ok bool
			if state, ok, err = store.State(ctx, s.engine, id); err == nil && !ok {
				err = fmt.Errorf("there is no state of %s", id)
			}
			return err
		}))
		for _, at := range missing(s.load.Acknowledged(id), stored.Samples) {
			s.a.Lost("the reading of %s at %s was acknowledged and is not stored", id, at.Time().Format("15:04:05.000"))
		}
		if want := fold(stored.Samples); state != want {
			s.a.Wrong("the state of %s is not the fold of its %d readings: its time is %s, and they end at %s", id,
				len(stored.Samples),
				state.Time.Time().Format("15:04:05.000"), want.Time.Time().Format("15:04:05.000"))
		}
	}
}

// missing returns the readings of the journal that are not among the stored ones. journal and
// stored are ordered by time.
func missing(journal []vehicle.UnixMilli, stored []vehicle.Sample) (lost []vehicle.UnixMilli) {
	for _, at := range journal {
		for len(stored) > 0 && stored[0].Time < at {
			stored = stored[1:]
		}
		if len(stored) == 0 || stored[0].Time != at {
			lost = append(lost, at)
		}
	}
	return lost
}

// fold returns the state that results from readings.
func fold(readings []vehicle.Sample) (s vehicle.State) {
	for _, x := range readings {
		s = vehicle.Observe(s, x)
	}
	return s
}
