package console

import (
	"context"
	"errors"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

const (
	scanTime   = 2 * time.Second
	maxSamples = 20_000 // after which a scan ends
)

// Wait and scan together take at most scanTime.
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

// scan folds the retained samples, because past verdicts are not stored. The first may differ from
// those of that time, which were based on older samples, too.
func (c *Console) scan(ctx context.Context, id vehicle.ID, now *vehicle.State) *curve {
	made := &curve{begun: c.Now(), Since: c.Now()}
	recent, err := c.Recent(ctx, id, maxSamples)
	if err != nil {
		made.Failed, made.Damaged = true, errors.Is(err, access.ErrDamaged)
		if !made.Damaged { // the store has logged it
			c.Log.Warn("the retained telemetry of a vehicle cannot be read", "error", err)
		}
		return made
	}
	made.Since, made.All = recent.Since, recent.All
	made.throttle.alarm, _ = now.ThrottleAlarm()
	var s vehicle.State
	for _, x := range recent.Samples {
		s = vehicle.Observe(s, x)
		made.note(&s)
	}
	return made
}
