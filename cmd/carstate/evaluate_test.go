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
	"strings"
	"syscall"
	"testing"

	"example.org/carstate/internal/testkit"
)

// labelledDrive has city traffic, a queue, and city traffic, with the labels of an observer.
func labelledDrive(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("VehicleSpeedInstantaneous;VehicleSpeedAverage;EngineLoad;EngineRPM;traffic\r\n")
	row := func(kmh, label string) { fmt.Fprintf(&b, "%s;20,0;30,0;1500;%s\r\n", kmh, label) }
	for i := range 300 {
		row(fmt.Sprint(40+i%10), "LowCongestionCondition")
	}
	for i := range 300 {
		row([]string{"0", "4,5", "9", "14", "16", "13", "8", "0"}[i%8], "HighCongestionCondition")
	}
	for i := range 300 {
		row(fmt.Sprint(40+i%10), "LowCongestionCondition")
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
	if code := run(t.Context(), append([]string{"evaluate"}, args...), &out, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Fatalf("exit %d: %s", code, &stderr)
	}
	return out.String()
}

func TestEvaluateJSON(t *testing.T) {
	out := evaluated(t, "--json", labelledDrive(t), demoDrive)
	if strings.Count(out, "\n") != 1 {
		t.Errorf("not one line: %s", out)
	}
	var got struct {
		Files []map[string]json.RawMessage `json:"files"`
		Total map[string]json.RawMessage   `json:"total"`
	}
	testkit.NoError(t, json.Unmarshal([]byte(out), &got))
	if len(got.Files) != 2 {
		t.Fatalf("%d files", len(got.Files))
	}
	for key, want := range map[string]string{
		"file": `"labelled.csv"`, "seconds": "899", "throttle_anomalies": "[]", "labelled_rows": "900",
	} {
		if v := string(got.Files[0][key]); v != want {
			t.Errorf("%s is %s, want %s", key, v, want)
		}
	}
	for _, key := range []string{"labelled_rows", "confusion", "accuracy", "macro_f1"} {
		if _, ok := got.Files[1][key]; ok {
			t.Errorf("%s of a log without labels", key)
		}
		if string(got.Total[key]) != string(got.Files[0][key]) {
			t.Errorf("%s of the total is %s", key, got.Total[key])
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
			t.Errorf("%v do not add up to %v s", s, parts[i].Seconds)
		}
	}
	if s := parts[1].States; s["3"] < 600 || s["1"] < 240 || s["0"] > 2 {
		t.Errorf("the demo: %v", s)
	}
	p := &parts[0]
	if p.Confusion[0][1] < 550 || p.Confusion[2][3] < 180 || p.Confusion[1] != [4]int{} {
		t.Errorf("confusion %v", p.Confusion)
	}
	if p.Accuracy < 0.8 || p.MacroF1 <= 0.5 || p.MacroF1 >= 1 {
		t.Errorf("accuracy %v, macro-F1 %v", p.Accuracy, p.MacroF1)
	}
}

func TestEvaluateTables(t *testing.T) {
	labelled := labelledDrive(t)
	one := evaluated(t, labelled)
	for _, want := range []string{
		"labelled.csv", "No throttle anomaly.", "label \\ verdict", "precision", "900 labelled rows, accuracy 0.",
	} {
		if !strings.Contains(one, want) {
			t.Errorf("no %q in\n%s", want, one)
		}
	}
	for _, absent := range []string{"labelled drive", "\nall "} {
		if strings.Contains(one, absent) {
			t.Errorf("%q for one drive in\n%s", absent, one)
		}
	}
	two := evaluated(t, labelled, labelled, demoDrive)
	for _, want := range []string{"\nall ", "1800 labelled rows", "\nlabelled drive"} {
		if !strings.Contains(two, want) {
			t.Errorf("no %q in\n%s", want, two)
		}
	}
	if none := evaluated(t, demoDrive); strings.Contains(none, "label") {
		t.Errorf("labels of a log without any:\n%s", none)
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
			t.Errorf("no %q", want)
		}
	}
	if len(svg) > 200_000 {
		t.Errorf("%d bytes", len(svg))
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
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
				t.Errorf("%s is not in %s", name, out)
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
			t.Errorf("%v: exit %d, %s, %s", c.args, code, &stderr, &out)
		}
	}
	if after, err := os.ReadFile(drive); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the drive was changed: %v", err)
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
		t.Errorf("exit %d: %s\n%s", code, &stderr, &out)
	}
}

func TestEvaluateUnknownLabels(t *testing.T) {
	const header = "VehicleSpeedInstantaneous;VehicleSpeedAverage;traffic\n"
	odd := writeDrive(t, "odd.csv", header+"50;20,0;4\n50;20,0;LowCongestionCondition\n50;20,0;jam\n")
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"evaluate", "--json", odd}, &out, &stderr); code != exitOK ||
		!strings.Contains(out.String(), `"labelled_rows":1,`) ||
		!strings.HasPrefix(stderr.String(), odd+": 2 of 3 rows not compared: a label that is not one of the three known") {
		t.Errorf("exit %d: %s\n%s", code, &stderr, &out)
	}
}

func TestEvaluateWithoutLabels(t *testing.T) {
	bare := writeDrive(t, "bare.csv", "VehicleSpeedInstantaneous;VehicleSpeedAverage\n"+strings.Repeat("50;20,0\n", 60))
	if out := evaluated(t, "--json", bare); !strings.Contains(out, `"1":59`) || strings.Contains(out, "labelled_rows") {
		t.Error(out)
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
		t.Errorf("the name of the file is not cleaned in %q", out)
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
		t.Errorf("exit %d: %s", c, &stderr)
	}
}

func readXML(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	testkit.NoError(t, err)
	wellFormed(t, string(text))
	return text
}
