package evaluate_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/evaluate"
	"example.org/carstate/internal/lab/fcd"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// open writes rows "vehicle,time,speed".
func open(t *testing.T, rows ...string) *fcd.Fleet {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fleet.csv")
	text := "vehicle,time,speed,latitude,longitude\n" + strings.Join(rows, ",44.5,11.5\n") + ",44.5,11.5\n"
	testkit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	f, err := fcd.Open(t.Context(), path)
	testkit.NoError(t, err)
	return f
}

// byLastSpeed is predictable. 100 km/h park the car.
func byLastSpeed(s *vehicle.State, x *vehicle.Sample, _ bool) (changed bool) {
	v, _ := x.Value(signal.Speed)
	s.Time = x.Time
	s.Traffic.At = x.Time
	s.Latest[signal.LowVoltageSystemState] = signal.Reading{}
	switch {
	case v == 100:
		s.Latest[signal.LowVoltageSystemState] = signal.Reading{Value: float32(signal.IgnitionOff), Time: x.Time}
	case v < 10:
		s.Pace = driving.Jam
	case v < 30:
		s.Pace = driving.Slow
	default:
		s.Pace = driving.Normal
	}
	return true
}

var origin = signal.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))

var plain = evaluate.FleetConfig{Fold: byLastSpeed, Share: 1}

const (
	normal = driving.Normal
	slow   = driving.Slow
	jam    = driving.Jam
)

func label(id vehicle.ID, seconds int, truth driving.State, sure bool) fcd.Label {
	return fcd.Label{Vehicle: id, At: time.Duration(seconds) * time.Second, Truth: truth, Sure: sure}
}

// An answer includes readings of the label's time, but no later ones.
func TestFleet_ComparesInTime(t *testing.T) {
	fleet := open(t, "A,10,50", "B,10,50", "A,20,20", "A,30,5", "B,40,100")
	r, err := evaluate.Fleet(t.Context(), plain, fleet, nil, []fcd.Label{
		label("A", 5, normal, true),     // none: nothing was read yet
		label("A", 10, normal, true),    // normal
		label("A", 19, slow, false),     // normal still
		label("A", 20, slow, true),      // slow
		label("C", 25, jam, true),       // not of this fleet
		label("A", 30, jam, true),       // jam
		label("B", 45, normal, true),    // none: parked
		label("A", 30+300, jam, false),  // jam: five minutes old
		label("A", 30+301, slow, false), // none: older
	})
	testkit.NoError(t, err)
	if want := [3][4]int{{2, 1, 0, 0}, {1, 1, 1, 0}, {0, 0, 0, 2}}; r.All.Confusion != want {
		t.Errorf("all: got %v, want %v", r.All.Confusion, want)
	}
	if want := [3][4]int{{2, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}; r.Sure.Confusion != want {
		t.Errorf("sure: got %v, want %v", r.Sure.Confusion, want)
	}
	if r.Vehicles != 2 || r.Readings != 5 {
		t.Errorf("got %d vehicles, %d readings, want 2, 5", r.Vehicles, r.Readings)
	}
	// F1: 2·1/(3+2), 2·1/(3+1), 2·2/(2+2).
	if f := (0.4 + 0.5 + 1) / 3; math.Abs(r.All.MacroF1-f) > 1e-12 {
		t.Errorf("macro-F1: got %v, want %v", r.All.MacroF1, f)
	}

	if _, err := evaluate.Fleet(t.Context(), plain, fleet, nil, []fcd.Label{label("C", 25, jam, true)}); err == nil ||
		!strings.Contains(err.Error(), "no label is of a car that sends") {
		t.Errorf("labels of other cars: got %v, want an error", err)
	}
}

// The last readings of the days are 24 hours apart, and a car of another day with the same name is
// another.
func TestFleet_LearnsDaysBefore(t *testing.T) {
	var seen []string
	c := plain
	c.Every = 10 * time.Second
	c.Fold = func(s *vehicle.State, x *vehicle.Sample, again bool) (changed bool) {
		seen = append(seen, fmt.Sprintf("%s %d %t", x.Vehicle, x.Time-origin, s.Time == 0))
		return byLastSpeed(s, x, again)
	}
	fleet := open(t, "A,100,50", "A,103,50", "B,105,50")
	learn := []*fcd.Fleet{open(t, "A,20,5"), open(t, "A,7000,5", "L,7001,5", "L,7009,5", "A,7050,5")}
	r, err := evaluate.Fleet(t.Context(), c, fleet, learn, []fcd.Label{label("A", 99, jam, true), label("A", 105, normal, true),
		label("L", 105, jam, true)})
	testkit.NoError(t, err)
	day := -24 * time.Hour.Milliseconds()
	want := []string{
		fmt.Sprintf("A %d true", 2*day+105_000),
		fmt.Sprintf("A %d true", day+55_000), fmt.Sprintf("L %d true", day+56_000), fmt.Sprintf("A %d false", day+105_000),
		"A 100000 true", "B 105000 true",
	}
	if strings.Join(seen, ", ") != strings.Join(want, ", ") {
		t.Errorf("got %v\nwant %v", seen, want)
	}
	if r.Vehicles != 2 || r.Readings != 2 || r.All.Rows != 2 || r.All.Confusion[0][1] != 1 ||
		r.All.Confusion[2][0] != 1 {
		t.Errorf("got %+v, want 2 vehicles, 2 readings and 2 labels, one of them normal, one unanswered", r)
	}
}

// Cars keep the interval, not all at the same time, and a second run makes the same choice.
func TestFleet_Thinned(t *testing.T) {
	const cars, seconds = 500, 60
	var rows []string
	var labels []fcd.Label
	for s := range seconds {
		for i := range cars {
			rows = append(rows, fmt.Sprintf("CAR%d,%d,50", i, s))
		}
	}
	for i := range cars {
		labels = append(labels, label(vehicle.ID(fmt.Sprintf("CAR%d", i)), seconds, normal, true))
	}
	fleet := open(t, rows...)
	kept := func() map[vehicle.ID][]int {
		sent, last := make(map[vehicle.ID][]int), 0
		c := plain
		c.Every, c.Share = 7*time.Second, 0.2
		c.Judged = func(x vehicle.Sample, said driving.State) {
			if said != normal {
				t.Errorf("judged: got %s, want %s", said, normal)
			}
			sent[x.Vehicle] = append(sent[x.Vehicle], int(x.Time.Sub(origin).Seconds()))
		}
		c.Progress = func(n int) { last += n }
		r, err := evaluate.Fleet(t.Context(), c, fleet, nil, labels)
		testkit.NoError(t, err)
		readings := 0
		for _, at := range sent {
			readings += len(at)
		}
		if r.Vehicles != len(sent) || r.All.Rows != len(sent) || r.Readings != readings {
			t.Errorf("got %d vehicles, %d labels, %d readings, want %d, %d, %d", r.Vehicles, r.All.Rows, r.Readings,
				len(sent), len(sent), readings)
		}
		if last < len(rows)-4096 || last > len(rows) {
			t.Errorf("the readings reported: got %d, want %d, or at most 4096 fewer", last, len(rows))
		}
		return sent
	}
	sent := kept()
	if n := len(sent); n < 70 || n > 130 {
		t.Errorf("the cars that send: got %d of %d, want a fifth", n, cars)
	}
	var phases [7]int
	for id, at := range sent {
		if at[0] != 0 {
			t.Errorf("%s: got its first reading after %d s, want 0", id, at[0])
		}
		for i := range at[1:] {
			if d := at[i+1] - at[i]; d < 7 || i > 0 && d != 7 {
				t.Fatalf("%s: got readings at %v, want 7 s between them", id, at)
			}
		}
		phases[at[1]%7]++
	}
	for i, n := range phases {
		if n == 0 {
			t.Errorf("at %d s of 7: got no car of %d, want some", i, len(sent))
		}
	}
	if fmt.Sprint(kept()) != fmt.Sprint(sent) {
		t.Error("another run: got other readings, want the same")
	}
}

func TestWithoutPositions(t *testing.T) {
	fleet := open(t, "A,1,50", "A,2,", "A,3,50")
	for without, want := range map[bool]int{false: 3, true: 2} {
		fleet.WithoutPositions = without
		c := plain
		c.Judged = func(x vehicle.Sample, _ driving.State) {
			if x.Has(signal.CurrentLatitude) == without || x.Has(signal.CurrentLongitude) == without {
				t.Errorf("without positions %t: got %+v, want a position: %t", without, x, !without)
			}
		}
		if r, err := evaluate.Fleet(t.Context(), c, fleet, nil, []fcd.Label{label("A", 3, normal, true)}); err != nil ||
			r.Readings != want {
			t.Errorf("without positions %t: got %d readings, %v, want %d", without, r.Readings, err, want)
		}
	}
}
