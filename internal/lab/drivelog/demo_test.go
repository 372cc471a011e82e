package drivelog_test

import (
	"os"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// NOTICE credits the drive.
const demoDrive = "../demo/drive.csv.gz"

func TestDemoDrive(t *testing.T) {
	info, err := os.Stat(demoDrive)
	testkit.NoError(t, err)
	if info.Size() > 60_000 {
		t.Errorf("%s: got %d bytes, want at most 60,000", demoDrive, info.Size())
	}
	d, err := drivelog.Open(t.Context(), demoDrive, nil)
	testkit.NoError(t, err)
	checkSums(t, d)
	if d.Format != "KIT" || len(d.ReadingsLeftOut) != 0 || len(d.Mended) != 0 {
		t.Errorf("got a %s log, %v, want KIT, and nothing left out", d.Format, d.Notes())
	}
	end := d.Duration()
	if end < 10*time.Minute || end > 30*time.Minute {
		t.Errorf("the duration: got %v, want 10 to 30 min", end)
	}

	start := signal.At(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	var state vehicle.State
	var jamSince time.Duration
	for i := range d.Rows {
		r := &d.Rows[i]
		state = vehicle.Observe(state, vehicle.Sample{Time: start.Add(r.At), Readings: r.Readings})
		if state.Driving().State != driving.Jam {
			jamSince = r.At
		}
		// The end must be a jam by any definition, not only by the present rules.
		if v, ok := r.Readings.Value(signal.OBDSpeed); ok {
			if r.At < 3*time.Minute && v < 80 {
				t.Errorf("at %v: got %g km/h, want 80 or more on the free road", r.At, v)
			}
			if r.At > end-12*time.Minute && v > 20 {
				t.Errorf("at %v: got %g km/h, want 20 at most in the jam", r.At, v)
			}
		}
	}
	pace, h := state.Driving(), state.Throttle()
	if pace.State != driving.Jam || pace.NotDriving || end-jamSince < time.Minute {
		t.Errorf("the end: got %v, not driving %v, %v in a jam, want 1m", pace.State, pace.NotDriving, end-jamSince)
	}
	if h.System != throttle.Normal || h.Time == 0 {
		t.Errorf("throttle: got %v of %v, want %v", h.System, h.Time.Time(), throttle.Normal)
	}
	last := start.Add(end)
	if last.Sub(pace.Time) > time.Second || last.Sub(h.Time) > time.Second {
		t.Errorf("the end: got a speed %v and a throttle %v old, want 1s", last.Sub(pace.Time), last.Sub(h.Time))
	}
}
