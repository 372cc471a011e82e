package node

import (
	"testing"
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

func TestSilentVehiclesExpire(t *testing.T) {
	heard := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	began := heard.Add(-day)
	y2038 := time.Date(2038, 1, 19, 3, 14, 9, 0, time.UTC)
	for what, c := range map[string]struct {
		ran     time.Duration
		now     time.Time
		dropped int
	}{
		"an hour later":                        {day + time.Hour, heard.Add(time.Hour), 0},
		"an hour later, the clock in 2038":     {day + time.Hour, y2038, 0},
		"after 30 days":                        {31*day + time.Second, heard.Add(30*day + time.Second), 1},
		"after 30 days, the clock in 2038":     {31*day + time.Second, y2038, 1},
		"after 30 days, the clock behind":      {31*day + time.Second, heard.Add(29 * day), 0},
		"soon after a start with a late clock": {time.Hour, heard.Add(-365 * day), 0},
	} {
		table := fleet.New()
		table.Put("car", fleet.Answer{Driving: vehicle.DrivingVerdict{Time: signal.At(heard)}})
		if n := table.Expire(expiryCutoff(began, c.ran, c.now, expireAfter)); n != c.dropped {
			t.Errorf("%s %d vehicles are dropped; want %d", what, n, c.dropped)
		}
	}
}
