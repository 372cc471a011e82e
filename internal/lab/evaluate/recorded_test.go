package evaluate

import (
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// recorded runs the rules over the recorded drives that a pattern names. If they are not present,
// it says that only invented drives are tested, and returns no result.
func recorded(t *testing.T, pattern string) (all Drives) {
	t.Helper()
	testkit.Slow(t, "it runs the rules over recorded drives")
	dir := testkit.RecordedDrives("the rules are tried on invented drives only")
	if dir == "" {
		return all
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) < 2 {
		t.Fatalf("got %d drives %s in %s, %v", len(files), pattern, dir, err)
	}
	for _, file := range files {
		d, err := drivelog.Open(t.Context(), file, nil)
		if err != nil {
			t.Fatal(err)
		}
		all.Add(strings.TrimSuffix(filepath.Base(file), ".csv.gz"), d)
	}
	return all
}

// TestLabelledDrives checks that the rules reach a macro-F1 of at least 0.42 and an F1 for jams of
// at least 0.39 on the drives that have labels, as they once did. It prints the figures of
// docs/verdicts.md:
//
//	go test -run TestLabelledDrives -v ./internal/lab/evaluate
func TestLabelledDrives(t *testing.T) {
	all := recorded(t, "tds/*_01.csv*")
	if all.Total.Agreement == nil {
		return
	}
	if err := all.WriteTables(t.Output()); err != nil {
		t.Fatal(err)
	}
	if macro, jam := all.Total.MacroF1, all.Total.Of(vehicle.TrafficJam).F1(); macro < 0.42 || jam < 0.39 {
		t.Errorf("macro-F1 %.3f, jam F1 %.3f: worse than it was", macro, jam)
	}
}

// TestSameRouteOrder compares drives on the same route. A drive labelled as a jam must spend more
// time in a jam than a drive with another label, in seconds and as a part of the drive. This must
// be so for nine of ten pairs.
func TestSameRouteOrder(t *testing.T) {
	part := func(r *fileResult) float64 {
		s := r.States
		return s[vehicle.TrafficJam] / (s[vehicle.NormalDriving] + s[vehicle.SlowDriving] + s[vehicle.TrafficJam])
	}
	all := recorded(t, "kit_obd/*.csv*")
	pairs, byPart, bySeconds := 0, 0, 0
	for i := range all.Files {
		jam := &all.Files[i]
		jamRoute, jamLabel := routeOf(jam.File)
		t.Logf("%-52s in a jam %4.0f s, %4.1f %%", jam.File, jam.States[vehicle.TrafficJam], 100*part(jam))
		for k := range all.Files {
			other := &all.Files[k]
			if route, label := routeOf(other.File); jamLabel != "Stau" || label == "Stau" || jamRoute != route {
				continue
			}
			pairs++
			if part(jam) > part(other) {
				byPart++
			} else {
				t.Logf("%s is not above %s", jam.File, other.File)
			}
			if jam.States[vehicle.TrafficJam] > other.States[vehicle.TrafficJam] {
				bySeconds++
			}
		}
	}
	t.Logf("%d pairs on one route, in order by part of the time: %d, by seconds: %d", pairs, byPart, bySeconds)
	if len(all.Files) > 0 && (pairs == 0 || byPart*10 < pairs*9 || bySeconds*10 < pairs*9) {
		t.Errorf("%d and %d of %d pairs in order, want 9 of 10", byPart, bySeconds, pairs)
	}
}

// routeOf extracts the route and the label from a name such as
// 2017-07-27_Seat_Leon_KA_KA_2_Normal.
func routeOf(name string) (route, label string) {
	_, rest, _ := strings.Cut(name, "Seat_Leon_")
	words := strings.Split(rest, "_")
	for _, w := range words[2:] {
		if w == "Stau" || w == "Normal" || w == "Frei" {
			label = w
		}
	}
	return words[0] + "_" + words[1], label
}
