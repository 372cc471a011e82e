//go:build !race

package fcd_test

import (
	"compress/gzip"
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"example.org/carstate/internal/lab/fcd"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/roadtest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// TestRecordedFleets reads the recorded fleets, if they are present.
func TestRecordedFleets(t *testing.T) {
	testkit.Slow(t, "it reads every recorded fleet")
	dir := testkit.RecordedDrives("only invented fleets are read")
	if dir == "" {
		return
	}
	folders, err := filepath.Glob(filepath.Join(dir, "road", "*"))
	if err != nil || len(folders) < 2 {
		t.Fatalf("fleets in %s: got %q, %v, want 2 or more", dir, folders, err)
	}
	for _, folder := range folders {
		all, err := fcd.ReadLabels(t.Context(), filepath.Join(folder, "labels.csv.gz"))
		if err != nil {
			t.Errorf("labels of %s: got %v, want no error", folder, err)
		}
		for _, name := range []string{"fcd.csv.gz", "learn.csv.gz"} {
			f, err := fcd.Open(t.Context(), filepath.Join(folder, name))
			if err != nil {
				t.Errorf("%s of %s: got %v, want no error", name, folder, err)
				continue
			}
			if f.Readings < 100_000 || len(f.Vehicles) < 500 || f.Last-f.First < time.Hour {
				t.Errorf("%s: got %d readings, %d cars, %s, want 100000, 500, 1h", folder, f.Readings, len(f.Vehicles),
					f.Last-f.First)
			}
			if name != "fcd.csv.gz" {
				continue
			}
			for _, l := range all {
				if _, ok := slices.BinarySearch(f.Vehicles, l.Vehicle); !ok || l.At < f.First ||
					l.At > f.Last+10*time.Second {
					t.Fatalf("%s: got a label of %s at %s, want a car and a time of the fleet", folder, l.Vehicle, l.At)
				}
			}
		}
	}
}

// The free flow learned from a day is compared with a run in very light traffic.
// docs/verdicts.md reports the median error.
func TestLearnedFreeFlow(t *testing.T) {
	testkit.Slow(t, "it reads every recorded fleet")
	dir := testkit.RecordedDrives("no learned free flow is held against that of light traffic")
	if dir == "" {
		return
	}
	for _, name := range []string{"bologna", "motorway"} {
		dir := filepath.Join(dir, "road", name)
		var m road.Map
		learn(t, &m, filepath.Join(dir, "learn.csv.gz"))
		var errors []float64
		for _, e := range edges(t, filepath.Join(dir, "edges.csv.gz")) {
			if kmh, ok := e.learned(&m); ok {
				errors = append(errors, math.Abs(kmh/e.freeKmh-1))
			}
		}
		slices.Sort(errors)
		if len(errors) < 20 {
			t.Fatalf("%s: got %d edges to compare, want 20 or more", name, len(errors))
		}
		median := errors[len(errors)/2]
		t.Logf("%s: median error %.1f %% on %d edges, 90 %% below %.0f %%", name, 100*median, len(errors),
			100*errors[len(errors)*9/10])
		if median > 0.2 {
			t.Errorf("%s: got a free flow off by %.1f %% in the median, want 20 %% at most", name, 100*median)
		}
	}
}

var freeFlowOrigin = signal.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))

func learn(t *testing.T, m *road.Map, name string) {
	t.Helper()
	fleet, err := fcd.Open(t.Context(), name)
	testkit.NoError(t, err)
	states := make(map[vehicle.ID]vehicle.State)
	for x, err := range fleet.Samples(t.Context(), freeFlowOrigin) {
		testkit.NoError(t, err)
		s := states[x.Vehicle]
		m.Fold(&s, &x, false)
		states[x.Vehicle] = s
	}
}

// edge is a road between two junctions.
type edge struct {
	metres, freeKmh     float64
	longitude, latitude [2]float64
	seen                float64 // seconds of driving behind freeKmh
}

func edges(t *testing.T, name string) (all []edge) {
	t.Helper()
	f, err := os.Open(name)
	testkit.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	testkit.NoError(t, err)
	rows, err := csv.NewReader(z).ReadAll()
	testkit.NoError(t, err)
	for _, row := range rows[1:] {
		var v [8]float64 // limit, length, ff, ff_n, lon0, lat0, lon1, lat1
		for i := range v {
			v[i], err = strconv.ParseFloat(row[i], 64)
			testkit.NoError(t, err)
		}
		if v[3] >= 30 {
			all = append(all, edge{metres: v[1], freeKmh: 3.6 * v[2], seen: v[3], longitude: [2]float64{v[4], v[6]},
				latitude: [2]float64{v[5], v[7]}})
		}
	}
	return all
}

// ok is false if the edge is short or bent, because its ends do not determine its stretches, or if
// the free flow is known on less than 80 % of it.
func (e *edge) learned(m *road.Map) (kmh float64, ok bool) {
	const perDegree = math.Pi / 180 * 6_371_008.8
	north := (e.latitude[1] - e.latitude[0]) * perDegree
	east := (e.longitude[1] - e.longitude[0]) * perDegree * math.Cos(e.latitude[0]*math.Pi/180)
	straight := math.Hypot(east, north)
	if straight < 100 || straight < 0.97*e.metres {
		return 0, false
	}
	var hours, km float64
	heading := math.Mod(math.Atan2(east, north)*180/math.Pi+360, 360)
	for at := 10.0; at < straight; at += 20 {
		along := at / straight
		c, ok := m.Condition(roadtest.StretchAt(e.latitude[0]+along*(e.latitude[1]-e.latitude[0]),
			e.longitude[0]+along*(e.longitude[1]-e.longitude[0]), heading), freeFlowOrigin)
		if !ok || c.FreeKmh == 0 {
			continue
		}
		hours += 0.02 / c.FreeKmh
		km += 0.02
	}
	if km < 0.8*straight/1000 {
		return 0, false
	}
	return km / hours, true
}
