package console

import (
	"context"
	"errors"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// Limits of scans, which read the retained samples of one vehicle for its curve or its strip.
const (
	maxScans   = 2
	maxStrips  = 1
	scanTime   = 2 * time.Second
	maxSamples = 20_000 // of a scan, which then ends
	maxPoints  = 20_000 // of a trail: about 800 KB of speeds, 480 KB of positions
)

// curve holds the recent speeds and verdicts of one vehicle. A live page keeps its curve, and adds
// the newest readings.
type curve struct {
	speeds    trail[speed]
	positions trail[positions] // of the two sensors of alarm; none without an anomaly
	alarm     throttle.Alarm
	scanned
}

type scanned struct {
	Since   time.Time // all samples stored since then were read
	All     bool      // there are no older samples
	Nothing bool      // no part of the samples could be read in time
	Failed  bool
	Damaged bool
	Busy    bool // nothing was read, because of too many scans
}

type speed struct {
	kmh   float32
	class string // of the verdict
}

type positions struct{ x, y float32 }

func (c *Console) curve(ctx context.Context, id vehicle.ID, now *vehicle.State) *curve {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	select {
	case c.scans <- struct{}{}:
		defer func() { <-c.scans }()
	case <-ctx.Done():
		return &curve{Busy: true}
	}
	return c.scan(ctx, id, now)
}

// scan folds the retained samples, because past verdicts are not stored. The first verdicts may
// differ from those of that time, which were based on older samples, too.
func (c *Console) scan(ctx context.Context, id vehicle.ID, now *vehicle.State) *curve {
	begun := c.Now()
	recent, err := c.Recent(ctx, id, maxSamples)
	if err != nil {
		damaged := errors.Is(err, access.ErrDamaged)
		if !damaged { // the store has logged it
			c.Log.Warn("the retained telemetry of a vehicle cannot be read", "error", err)
		}
		return &curve{Failed: true, Damaged: damaged}
	}
	made := &curve{Since: recent.Since, All: recent.All, Nothing: !recent.All && !recent.Since.Before(begun)}
	made.alarm = now.ThrottleAlarm()
	var s vehicle.State
	for _, x := range recent.Samples {
		s = vehicle.Observe(s, x)
		made.note(&s)
	}
	return made
}

func (k *curve) note(s *vehicle.State) {
	newest, _ := s.Latest.Speed()
	k.speeds.add(newest.Time, speed{newest.Value, classOf(s.Driving())})
	x, y := s.Latest[k.alarm.X], s.Latest[k.alarm.Y]
	if k.alarm.Since != 0 && x.Time != 0 && y.Time != 0 {
		k.positions.add(max(x.Time, y.Time), positions{x.Value, y.Value})
	}
}

// shows reports whether the curve, which may be nil, was scanned for the present anomaly of s, or
// for none if s has none.
func (k *curve) shows(s *vehicle.State) bool {
	return k != nil && !k.Busy && s.ThrottleAlarm().Since == k.alarm.Since
}

// trail has readings, oldest first.
type trail[V any] []reading[V]

type reading[V any] struct {
	at    signal.UnixMilli
	value V
}

func (t *trail[V]) add(at signal.UnixMilli, value V) {
	if n := len(*t); at == 0 || n > 0 && at <= (*t)[n-1].at {
		return
	}
	*t = append(*t, reading[V]{at, value})
	*t = (*t)[max(0, len(*t)-maxPoints):]
}

// lastHour returns the readings up to an hour older than the newest, or nil if the newest is alone.
func (t trail[V]) lastHour() trail[V] {
	for len(t) > 1 && t[0].at < t[len(t)-1].at.Add(-curveSpan) {
		t = t[1:]
	}
	if len(t) < 2 {
		return nil
	}
	return t
}
