package drivelog_test

import (
	"os"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// NOTICE credits the drive.
const demoDrive = "../demo/drive.csv.gz"

func TestDemoDrive(t *testing.T) {
	info, err := os.Stat(demoDrive)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 60_000 {
		t.Errorf("%d bytes; at most 60,000 are bundled", info.Size())
	}
	d, err := drivelog.Open(t.Context(), demoDrive, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkSums(t, d)
	if d.Format != "KIT" || len(d.ReadingsLeftOut) != 0 || len(d.Mended) != 0 {
		t.Errorf("a %s log, %v", d.Format, d.Notes())
	}
	end := d.Duration()
	if end < 10*time.Minute || end > 30*time.Minute {
		t.Errorf("lasts %v", end)
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
				t.Errorf("only %g km/h at %v, where the road should be free", v, r.At)
			}
			if r.At > end-12*time.Minute && v > 20 {
				t.Errorf("%g km/h at %v, in what should be the jam", v, r.At)
			}
		}
	}
	pace, h := state.Driving(), state.Throttle()
	if pace.State != driving.Jam || pace.NotDriving || end-jamSince < time.Minute {
		t.Errorf("ends as %v, not driving %v, in the jam for %v", pace.State, pace.NotDriving, end-jamSince)
	}
	if h.System != throttle.Normal || h.Time == 0 {
		t.Errorf("throttle %v of %v", h.System, h.Time.Time())
	}
	last := start.Add(end)
	if last.Sub(pace.Time) > time.Second || last.Sub(h.Time) > time.Second {
		t.Errorf("ends with a speed %v and a throttle %v old", last.Sub(pace.Time), last.Sub(h.Time))
	}
}
