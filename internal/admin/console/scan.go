package console

import (
	"context"
	"errors"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// Limits for reading the recent samples of vehicles.
const (
	scanTime   = 2 * time.Second // maximum time of one scan
	maxSamples = 20_000          // samples of the vehicle after which a scan ends
)

// curve calls scan, at most maxScans times at once. Wait and scan together take at most scanTime.
// If the wait takes all of it, the curve is empty and Busy.
func (c *Console) curve(ctx context.Context, id vehicle.ID, now *vehicle.State) *curve {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	select {
	case c.scans <- struct{}{}:
		defer func() { <-c.scans }()
	case <-ctx.Done():
		return &curve{begun: c.Now(), Since: c.Now(), Busy: true}
	}
	return c.scan(ctx, id, now)
}

// scan reads the retained samples of a vehicle until ctx ends, and folds them, because past
// verdicts are not stored. The first verdicts may differ from those of that time, which were also
// based on older samples. If the samples cannot be read, the curve is empty and Failed.
func (c *Console) scan(ctx context.Context, id vehicle.ID, now *vehicle.State) *curve {
	made := &curve{begun: c.Now(), Since: c.Now()}
	samples, since, all, err := c.Recent(ctx, id, maxSamples)
	if err != nil {
		made.Failed, made.Damaged = true, errors.Is(err, access.ErrDamaged)
		if !made.Damaged { // the store itself has logged the damage
			c.Log.Warn("the retained telemetry of a vehicle cannot be read", "error", err)
		}
		return made
	}
	made.Since, made.All = since, all
	made.throttle.alarm, made.throttle.alarmed = now.ThrottleAlarm()
	var s vehicle.State
	for _, x := range samples {
		s = vehicle.Observe(s, x)
		made.note(&s)
	}
	return made
}
