//go:build !race

package evaluate_test

import (
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/lab/evaluate"
	"example.org/carstate/internal/test/testkit"
)

// recorded is empty if the drives are not present.
func recorded(t *testing.T, pattern string) (all evaluate.Drives) {
	t.Helper()
	testkit.Slow(t, "it runs the rules over recorded drives")
	dir := testkit.RecordedDrives("the rules are tried on invented drives only")
	if dir == "" {
		return all
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) < 2 {
		t.Fatalf("drives %s in %s: got %d, %v, want 2 or more", pattern, dir, len(files), err)
	}
	for _, file := range files {
		d, err := drivelog.Open(t.Context(), file, nil)
		testkit.NoError(t, err)
		all.Add(strings.TrimSuffix(filepath.Base(file), ".csv.gz"), d)
	}
	return all
}

// The rules must reach what they once reached. With -v, the test prints the figures of
// docs/verdicts.md.
func TestLabelledDrives(t *testing.T) {
	all := recorded(t, "tds/*_01.csv*")
	if all.Total.Agreement == nil {
		return
	}
	testkit.NoError(t, all.WriteTables(t.Output()))
	if macro, jam := all.Total.MacroF1, all.Total.Of(driving.Jam).F1(); macro < 0.42 || jam < 0.39 {
		t.Errorf("got macro-F1 %.3f, jam F1 %.3f, want 0.42, 0.39 or more", macro, jam)
	}
}

// Of two drives on the same route, the one labelled as a jam has more time in a jam, in nine of ten
// pairs.
func TestSameRouteOrder(t *testing.T) {
	part := func(s [4]float64) float64 {
		return s[driving.Jam] / (s[driving.Normal] + s[driving.Slow] + s[driving.Jam])
	}
	all := recorded(t, "kit_obd/*.csv*")
	pairs, byPart, bySeconds := 0, 0, 0
	for i := range all.Files {
		jam := &all.Files[i]
		jamRoute, jamLabel := routeOf(jam.File)
		t.Logf("%-52s in a jam %4.0f s, %4.1f %%", jam.File, jam.States[driving.Jam], 100*part(jam.States))
		for k := range all.Files {
			other := &all.Files[k]
			if route, label := routeOf(other.File); jamLabel != "Stau" || label == "Stau" || jamRoute != route {
				continue
			}
			pairs++
			if part(jam.States) > part(other.States) {
				byPart++
			} else {
				t.Logf("%s is not above %s", jam.File, other.File)
			}
			if jam.States[driving.Jam] > other.States[driving.Jam] {
				bySeconds++
			}
		}
	}
	t.Logf("%d pairs on one route, in order by part of the time: %d, by seconds: %d", pairs, byPart, bySeconds)
	if len(all.Files) > 0 && (pairs == 0 || byPart*10 < pairs*9 || bySeconds*10 < pairs*9) {
		t.Errorf("pairs in order: got %d and %d of %d, want 9 of 10", byPart, bySeconds, pairs)
	}
}

// routeOf takes a name such as 2017-07-27_Seat_Leon_KA_KA_2_Normal.
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
