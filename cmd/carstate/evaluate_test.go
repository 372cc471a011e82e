package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/evaluate"
	"example.org/carstate/internal/lab/score"
	"example.org/carstate/internal/test/testkit"
)

func labelledDrive(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("VehicleSpeedInstantaneous;VehicleSpeedAverage;EngineLoad;EngineRPM;traffic\r\n")
	row := func(kmh, label string) { fmt.Fprintf(&b, "%s;20,0;30,0;1500;%s\r\n", kmh, label) }
	for i := range 900 {
		if i/300 == 1 {
			row([]string{"0", "4,5", "9", "14", "16", "13", "8", "0"}[(i-300)%8], "HighCongestionCondition")
		} else {
			row(fmt.Sprint(40+i%10), "LowCongestionCondition")
		}
	}
	return writeDrive(t, "labelled.csv", b.String())
}

func writeDrive(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	testkit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func evaluated(t *testing.T, args ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	code := run(t.Context(), append([]string{"evaluate"}, args...), &out, &stderr)
	// On a busy machine it says its progress.
	said := regexp.MustCompile(`(?m)^\d+ of \d+ readings\n`).ReplaceAllString(stderr.String(), "")
	if code != exitOK || said != "" {
		t.Fatalf("evaluate %s: got exit code %d, %s, want %d and no message", args, code, said, exitOK)
	}
	return out.String()
}

func TestEvaluateJSON(t *testing.T) {
	out := evaluated(t, "--json", labelledDrive(t), demoDrive)
	if strings.Count(out, "\n") != 1 {
		t.Errorf("--json: got\n%s\nwant one line", out)
	}
	var got struct {
		Files []map[string]json.RawMessage `json:"files"`
		Total map[string]json.RawMessage   `json:"total"`
	}
	testkit.NoError(t, json.Unmarshal([]byte(out), &got))
	if len(got.Files) != 2 {
		t.Fatalf("the files: got %d, want 2", len(got.Files))
	}
	for key, want := range map[string]string{
		"file": `"labelled.csv"`, "seconds": "899", "throttle_anomalies": "[]", "labelled_rows": "900",
	} {
		if v := string(got.Files[0][key]); v != want {
			t.Errorf("%s: got %s, want %s", key, v, want)
		}
	}
	for _, key := range []string{"labelled_rows", "confusion", "accuracy", "macro_f1"} {
		if _, ok := got.Files[1][key]; ok {
			t.Errorf("%s of a log without labels: got it, want it absent", key)
		}
		if string(got.Total[key]) != string(got.Files[0][key]) {
			t.Errorf("%s of the total: got %s, want %s", key, got.Total[key], got.Files[0][key])
		}
	}

	var parts [3]struct {
		Seconds   float64            `json:"seconds"`
		States    map[string]float64 `json:"seconds_in_state"`
		Confusion [3][4]int          `json:"confusion"`
		Accuracy  float64            `json:"accuracy"`
		MacroF1   float64            `json:"macro_f1"`
	}
	for i, raw := range []map[string]json.RawMessage{got.Files[0], got.Files[1], got.Total} {
		b, err := json.Marshal(raw)
		if err == nil {
			err = json.Unmarshal(b, &parts[i])
		}
		testkit.NoError(t, err)
		s := parts[i].States
		if sum := s["0"] + s["1"] + s["2"] + s["3"]; len(s) != 4 || math.Abs(sum-parts[i].Seconds) > 1e-6 {
			t.Errorf("the states: got %v, want 4 that add up to %v s", s, parts[i].Seconds)
		}
	}
	if s := parts[1].States; s["3"] < 600 || s["1"] < 240 || s["0"] > 2 {
		t.Errorf("the demo: got %v, want 600 s or more of 3, 240 of 1, and 2 at most of 0", s)
	}
	p := &parts[0]
	if p.Confusion[0][1] < 550 || p.Confusion[2][3] < 180 || p.Confusion[1] != [4]int{} {
		t.Errorf("the confusion: got %v, want 550 or more at [0][1], 180 at [2][3], 0 at [1]", p.Confusion)
	}
	if p.Accuracy < 0.8 || p.MacroF1 <= 0.5 || p.MacroF1 >= 1 {
		t.Errorf("got accuracy %v, macro-F1 %v, want 0.8 or more, and 0.5 to 1", p.Accuracy, p.MacroF1)
	}
}

func TestEvaluateTables(t *testing.T) {
	labelled := labelledDrive(t)
	one := evaluated(t, labelled)
	for _, want := range []string{
		"labelled.csv", "No throttle anomaly.", "label \\ verdict", "precision", "900 labelled rows, accuracy 0.",
	} {
		if !strings.Contains(one, want) {
			t.Errorf("one drive: got\n%s\nwant %q", one, want)
		}
	}
	for _, absent := range []string{"labelled drive", "\nall "} {
		if strings.Contains(one, absent) {
			t.Errorf("one drive: got\n%s\nwant no %q", one, absent)
		}
	}
	two := evaluated(t, labelled, labelled, demoDrive)
	for _, want := range []string{"\nall ", "1800 labelled rows", "\nlabelled drive"} {
		if !strings.Contains(two, want) {
			t.Errorf("three drives: got\n%s\nwant %q", two, want)
		}
	}
	if none := evaluated(t, demoDrive); strings.Contains(none, "label") {
		t.Errorf("a log without labels: got\n%s\nwant no label", none)
	}
}

func TestEvaluatePlot(t *testing.T) {
	labelled := labelledDrive(t)
	file := filepath.Join(t.TempDir(), "plot.svg")
	evaluated(t, "--plot", file, labelled, demoDrive)
	svg, err := os.ReadFile(file)
	testkit.NoError(t, err)
	wellFormed(t, string(svg))
	for _, want := range []string{"labelled.csv", filepath.Base(demoDrive), "speed, km/h", "minutes driven", "traffic jam",
		"#f0a39b", "#1f3a5f"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the plot: got no %q, want it", want)
		}
	}
	if len(svg) > 200_000 {
		t.Errorf("the plot: got %d bytes, want 200000 at most", len(svg))
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the plot: got %v, want no error:\n%s", err, svg)
		}
	}
}

func TestEvaluateTellsFoldersApart(t *testing.T) {
	drive := labelledDrive(t)
	other := labelledDrive(t)
	for _, args := range [][]string{{drive, other}, {"--json", drive, other}} {
		out := evaluated(t, args...)
		for _, path := range []string{drive, other} {
			name := filepath.ToSlash(filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)))
			if !strings.Contains(out, name) {
				t.Errorf("%s: got\n%s\nwant %s", args, out, name)
			}
		}
	}
}

func TestEvaluateRefuses(t *testing.T) {
	drive := labelledDrive(t)
	before, err := os.ReadFile(drive)
	testkit.NoError(t, err)
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{nil, exitUsage, "expected"},
		{[]string{"--plot", drive, drive}, exitUsage, "is one of the files to read"},
		{[]string{filepath.Join(t.TempDir(), "none.csv")}, exitError, "cannot be read"},
		{[]string{writeDrive(t, "odd.csv", "a,b\n1,2\n")}, exitError, "odd.csv"},
		{[]string{"--plot", filepath.Join(t.TempDir(), "no", "such.svg"), drive}, exitError, "the plot cannot be written"},
	} {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"evaluate"}, c.args...), &out, &stderr); code != c.code ||
			!strings.Contains(stderr.String(), c.text) || out.Len() > 0 {
			t.Errorf("%v: got exit code %d, %s, %s, want %d, %q", c.args, code, &stderr, &out, c.code, c.text)
		}
	}
	if after, err := os.ReadFile(drive); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the drive: got a change, %v, want it as before", err)
	}
}

func TestEvaluateCutFile(t *testing.T) {
	whole, err := os.ReadFile(demoDrive)
	testkit.NoError(t, err)
	cut := writeDrive(t, "cut.csv.gz", string(whole[:len(whole)/2]))
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"evaluate", cut}, &out, &stderr); code != exitOK ||
		!strings.Contains(out.String(), "cut.csv.gz") ||
		stderr.String() != cut+": file ends early or damaged: read up to there\n" {
		t.Errorf("a cut file: got exit code %d, %s\n%s\nwant %d and a message", code, &stderr, &out, exitOK)
	}
}

func TestEvaluateUnknownLabels(t *testing.T) {
	const header = "VehicleSpeedInstantaneous;VehicleSpeedAverage;traffic\n"
	odd := writeDrive(t, "odd.csv", header+"50;20,0;4\n50;20,0;LowCongestionCondition\n50;20,0;jam\n")
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"evaluate", "--json", odd}, &out, &stderr); code != exitOK ||
		!strings.Contains(out.String(), `"labelled_rows":1,`) ||
		!strings.HasPrefix(stderr.String(), odd+": 2 of 3 rows not compared: a label that is not one of the three known") {
		t.Errorf("unknown labels: got exit code %d, %s\n%s\nwant %d, 2 of 3 not compared", code, &stderr, &out, exitOK)
	}
}

func TestEvaluateWithoutLabels(t *testing.T) {
	bare := writeDrive(t, "bare.csv", "VehicleSpeedInstantaneous;VehicleSpeedAverage\n"+strings.Repeat("50;20,0\n", 60))
	if out := evaluated(t, "--json", bare); !strings.Contains(out, `"1":59`) || strings.Contains(out, "labelled_rows") {
		t.Errorf("a log without labels: got\n%s\nwant 59 s of 1, no labelled rows", out)
	}
}

// A file's name cannot control the terminal, break a table or make a plot invalid.
func TestEvaluateOddNames(t *testing.T) {
	odd := filepath.Join(filepath.Dir(labelledDrive(t)), "a\x1b[31m\n\x01.csv")
	testkit.NoError(t, os.Rename(filepath.Join(filepath.Dir(odd), "labelled.csv"), odd))
	svg := filepath.Join(t.TempDir(), "plot.svg")
	var stderr bytes.Buffer
	run(t.Context(), []string{"evaluate", odd + "x"}, io.Discard, &stderr)
	out := evaluated(t, "--plot", svg, odd) + stderr.String()
	if !strings.Contains(out, "a\uFFFD[31m\uFFFD\uFFFD.csv") || strings.ContainsAny(out, "\x1b\x01") {
		t.Errorf("an odd name of a file: got\n%q\nwant it without control characters", out)
	}
	readXML(t, svg)
}

// Ctrl-C ends the command even while it waits for a pipe.
func TestEvaluateStops(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	testkit.NoError(t, syscall.Mkfifo(pipe, 0o600))
	ctx, interrupt := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	code := make(chan int)
	go func() { code <- run(ctx, []string{"evaluate", pipe}, io.Discard, &stderr) }()
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns once there is a reader
	testkit.NoError(t, err)
	defer writer.Close()
	interrupt()
	if c := <-code; c != exitStopped || !strings.Contains(stderr.String(), "stopped before it was done") {
		t.Errorf("the interrupted command: got exit code %d, %s, want %d, stopped", c, &stderr, exitStopped)
	}
}

func readXML(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	testkit.NoError(t, err)
	wellFormed(t, string(text))
	return text
}

// Of twenty cars that drive east for five minutes, ten are in a jam from the second minute on.
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
			t.Fatalf("%s: got %v, %s, want one line about the fleet", args, err, out)
		}
		for _, key := range []string{"vehicles", "readings", "stretches", "confusion", "sure", "macro_f1", "f1", "normal",
			"slow", "jam"} {
			if strings.Count(out, `"`+key+`":`) != 1 {
				t.Errorf("%s: got it %d times, want once:\n%s", key, strings.Count(out, `"`+key+`":`), out)
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
		t.Errorf("with another day: got %+v, want 20 vehicles, 6000 readings, %v", learned, all.Confusion)
	}
	thin := of("--every", "5s", "--share", "0.5", "--without-positions")
	if thin.Vehicles == 0 || thin.Vehicles >= 20 || thin.Readings > thin.Vehicles*60 || thin.Readings < thin.Vehicles*58 {
		t.Errorf("thinned: got %+v, want 1 to 19 vehicles, of 58 to 60 readings each", thin)
	}
	var sum score.Agreement
	sum.Join(&score.Agreement{Confusion: thin.Confusion})
	if sum.MacroF1 != thin.MacroF1 || sum.Of(driving.Jam).F1() != thin.F1.Jam {
		t.Errorf("thinned: got %+v, want macro-F1 %v, F1 %v of a jam", thin, sum.MacroF1, sum.Of(driving.Jam).F1())
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
			t.Errorf("the tables: got\n%s\nwant %q", out, text)
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
		t.Errorf("the marks of a jam: got %d, want 11", n)
	}
	if !strings.Contains(string(text), " m</text>") {
		t.Error("the map: got no length, want one")
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
			t.Errorf("%s: got exit code %d, %s, %s, want %d, one line %q", c.args, code, &stderr, &out, c.code, c.text)
		}
	}
}
