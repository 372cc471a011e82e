package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/lab/evaluate"
	"example.org/carstate/internal/lab/score"
	"example.org/carstate/internal/vehicle"
)

// Twenty cars drive east for five minutes, ten of them in a jam from the second minute on.
func fleetFiles(t *testing.T) (fleet, truth string) {
	t.Helper()
	var readings, labels strings.Builder
	readings.WriteString("vehicle,time,latitude,longitude,speed\n")
	labels.WriteString("vehicle,time,truth,sure,share\n")
	for s := range 300 {
		for i := range 20 {
			kmh, longitude := 50+s%5, 11.3+0.0001*float64(s)
			if jammed := i >= 10 && s > 60; jammed {
				kmh, longitude = s%8, 11.31
			}
			fmt.Fprintf(&readings, "CAR%02d,%d,%.6f,%.6f,%d\n", i, s, 44.5+0.001*float64(i), longitude, kmh)
			if truth := map[bool]string{false: "normal,1,0.9", true: "jam,1,0.1"}[i >= 10]; s == 55 && i < 10 || s == 290 {
				fmt.Fprintf(&labels, "CAR%02d,%d,%s\n", i, s, truth)
			}
		}
	}
	return writeDrive(t, "fcd.csv", readings.String()), writeDrive(t, "labels.csv", labels.String())
}

func TestEvaluateFleet(t *testing.T) {
	fleet, truth := fleetFiles(t)
	of := func(args ...string) (r evaluate.FleetReport) {
		t.Helper()
		out := evaluated(t, append([]string{"--json", "--fleet", fleet, "--truth", truth}, args...)...)
		var got struct {
			Fleet *evaluate.FleetReport `json:"fleet"`
		}
		d := json.NewDecoder(strings.NewReader(out))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil || got.Fleet == nil || strings.Count(out, "\n") != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		for _, key := range []string{"vehicles", "readings", "stretches", "confusion", "sure", "macro_f1", "f1", "normal",
			"slow", "jam"} {
			if strings.Count(out, `"`+key+`":`) != 1 {
				t.Errorf("%s is not there once: %s", key, out)
			}
		}
		return *got.Fleet
	}
	all := of()
	if all.Vehicles != 20 || all.Readings != 6000 {
		t.Errorf("got %+v, want 20 vehicles and 6000 readings", all)
	}
	if want := [3][4]int{{0, 20, 0, 0}, {}, {0, 0, 0, 10}}; all.Confusion != want || all.Sure != want ||
		all.MacroF1 != 1 || all.F1.Normal != 1 || all.F1.Slow != 0 || all.F1.Jam != 1 {
		t.Errorf("got %+v, want the confusion %v, all of it sure, and the F1 of that", all, want)
	}
	if learned := of("--learn", fleet); learned.Vehicles != 20 || learned.Readings != 6000 ||
		learned.Confusion != all.Confusion {
		t.Errorf("with another day: %+v", learned)
	}
	thin := of("--every", "5s", "--share", "0.5", "--without-positions")
	if thin.Vehicles == 0 || thin.Vehicles >= 20 || thin.Readings > thin.Vehicles*60 || thin.Readings < thin.Vehicles*58 {
		t.Errorf("thinned: %+v", thin)
	}
	var sum score.Agreement
	sum.Join(&score.Agreement{Confusion: thin.Confusion})
	if sum.MacroF1 != thin.MacroF1 || sum.Of(vehicle.TrafficJam).F1() != thin.F1.Jam {
		t.Errorf("the figures are not of the confusion: %+v", thin)
	}
}

func TestEvaluateFleetTables(t *testing.T) {
	fleet, truth := fleetFiles(t)
	out := evaluated(t, "--fleet", fleet, "--truth", truth)
	for _, text := range []string{
		"vehicles  readings  stretches\n20        6000 ",
		"normal           0     20 ", "30 labelled rows, accuracy 1.000, macro-F1 1.000",
		"Of these, the labels that are sure:",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not in\n%s", text, out)
		}
	}
}

func TestEvaluateMap(t *testing.T) {
	fleet, truth := fleetFiles(t)
	svg := filepath.Join(t.TempDir(), "map.svg")
	evaluated(t, "--fleet", fleet, "--truth", truth, "--plot", svg)
	text := readXML(t, svg)
	// The legend has one mark of this colour, and each car in the jam.
	if n := strings.Count(string(text), "#c0281c"); n != 11 {
		t.Errorf("%d marks of a jam", n)
	}
	if !strings.Contains(string(text), " m</text>") {
		t.Error("no length is drawn")
	}
}

func TestEvaluateFleetRefuses(t *testing.T) {
	fleet, truth := fleetFiles(t)
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"--fleet FCD", exitUsage, "--truth LABELS"},
		{"--truth LABELS drive.csv", exitUsage, "--fleet FCD"},
		{"--every 5s drive.csv", exitUsage, "--fleet FCD"},
		{"--fleet FCD --truth LABELS drive.csv", exitUsage, "leave out either"},
		{"--fleet FCD --truth LABELS --every=-1s", exitUsage, "--every must"},
		{"--fleet FCD --truth LABELS --share 0", exitUsage, "--share must"},
		{"--fleet FCD --truth LABELS --share NaN", exitUsage, "--share must"},
		{"--fleet FCD --truth LABELS --share 20", exitUsage, "--share must"},
		{"--fleet FCD --truth LABELS --plot LABELS", exitUsage, "one of the files to read"},
		{"--fleet FCD --truth LABELS --plot x.svg --without-positions", exitUsage, "needs positions"},
		{"--fleet LABELS --truth LABELS", exitError, "labels.csv, line 1: there is no column latitude"},
		{"--fleet FCD --truth FCD", exitError, "fcd.csv, line 1: there is no column truth"},
		{"--fleet FCD --truth LABELS --learn none.csv", exitError, "none.csv cannot be read: no such file"},
		{"--fleet FCD --truth LABELS --share 0.0001", exitError, "no label is of a car that sends"},
	} {
		args := strings.Fields(strings.NewReplacer("FCD", fleet, "LABELS", truth).Replace(c.args))
		var out, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"evaluate"}, args...), &out, &stderr); code != c.code ||
			!strings.Contains(stderr.String(), c.text) || out.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %s, %s", c.args, code, &stderr, &out)
		}
	}
}
