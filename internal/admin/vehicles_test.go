package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestVehicle_KnownStaleAndUnknown(t *testing.T) {
	x := vehicle.Sample{Vehicle: "carA", Time: signal.At(noon.Add(-time.Minute))}
	for _, err := range []error{x.Set(signal.Speed, 50), x.Set(signal.ThrottlePosition, 20),
		x.Set(signal.CurrentLatitude, 44.5)} {
		testkit.NoError(t, err)
	}
	state := vehicle.Observe(vehicle.State{}, x)
	s := startOps(t, func(c *ops.Config) {
		c.MaxAge = 5 * time.Minute
		c.State = func(_ context.Context, id vehicle.ID) (vehicle.State, bool, error) {
			switch id {
			case "carA":
				return state, true, nil
			case "broken":
				return vehicle.State{}, false, errors.New("the disk is on fire")
			}
			return vehicle.State{}, false, nil
		}
	})
	v, err := s.Vehicle(t.Context(), "carA")
	testkit.NoError(t, err)
	if v.VID != "carA" || v.MaxAgeSeconds != 300 || len(v.Readings) != 3 || v.Readings[0].Signal != "Vehicle.Speed" ||
		*v.Readings[0].Value != 50 {
		t.Errorf("got %+v, want carA with 3 readings", v)
	}
	if r := v.Readings[2]; r.Signal != "Vehicle.CurrentLocation.Latitude" || r.Value != nil ||
		!r.Time.Equal(noon.Add(-time.Minute)) {
		t.Errorf("the position: got %+v, want its time without its value", r)
	}
	d := v.Driving
	if d.Outcome != "answered" || d.Verdict != "normal driving" || d.Value != "1" || d.Rule == "" || d.Version < 1 ||
		len(d.Facts) == 0 || d.Time == nil || !d.Time.Equal(noon.Add(-time.Minute)) {
		t.Errorf("driving: got %+v, want normal driving of a minute ago, with its rule and facts", d)
	}
	if h := v.Throttle; h.Outcome != "answered" || h.Verdict != "normal" || h.Value != "1" || h.Text == "" {
		t.Errorf("throttle: got %+v, want normal, with a text", h)
	}
	s.clock.Advance(time.Hour)
	if v, err = s.Vehicle(t.Context(), "carA"); err != nil || v.Driving.Outcome != "stale" || v.Driving.Value != "1" {
		t.Errorf("driving an hour later: got %+v, %v; want the stale value 1", v.Driving, err)
	}
	for id, status := range map[vehicle.ID]int{"carB": 404, "car-B": 400, "broken": 503} {
		refused(t, string(id), second(s.Vehicle(t.Context(), id)), status, "")
	}
	s.Key, _ = access.NewSecret(access.AdminKind)
	refused(t, "with another key", second(s.Vehicle(t.Context(), "carA")), 401, "")
}
