package vehicle_test

import (
	"testing"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

func TestAt_LimitsOfAge(t *testing.T) {
	const read = signal.UnixMilli(1_000_000)
	for _, c := range []struct {
		name   string
		v      vehicle.DrivingVerdict
		now    signal.UnixMilli
		maxAge time.Duration
		want   vehicle.Outcome
	}{
		{"nothing known", vehicle.DrivingVerdict{}, read, time.Minute, vehicle.Unknown},
		{"nothing known, any age", vehicle.DrivingVerdict{}, read, 0, vehicle.Unknown},
		{"just read", vehicle.DrivingVerdict{State: 1, Time: read}, read, time.Minute, vehicle.Answered},
		{"as old as it may be", vehicle.DrivingVerdict{State: 1, Time: read}, read.Add(time.Minute), time.Minute,
			vehicle.Answered},
		{"too old", vehicle.DrivingVerdict{State: 1, Time: read}, read.Add(time.Minute) + 1, time.Minute,
			vehicle.Stale},
		{"any age", vehicle.DrivingVerdict{State: 1, Time: read}, read.Add(24 * 365 * time.Hour), 0, vehicle.Answered},
		{"from a clock ahead", vehicle.DrivingVerdict{State: 1, Time: read}, read.Add(-time.Minute), time.Second,
			vehicle.Answered},
		{"from a clock that was wrong", vehicle.DrivingVerdict{State: 1, Time: read}, read.Add(-vehicle.MaxAhead) - 1,
			time.Hour, vehicle.Stale},
		{"parked", vehicle.DrivingVerdict{NotDriving: true, Time: read}, read, time.Minute, vehicle.NotDriving},
		{"parked, long ago", vehicle.DrivingVerdict{NotDriving: true, Time: read}, read.Add(time.Hour), time.Minute,
			vehicle.Stale},
	} {
		if got := c.v.At(c.now, c.maxAge); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if c.v.NotDriving {
			continue
		}
		if got := (vehicle.ThrottleVerdict{Time: c.v.Time}).At(c.now, c.maxAge); got != c.want {
			t.Errorf("throttle, %s: %q, want %q", c.name, got, c.want)
		}
	}
}
