package drivelog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
)

const clockSet = "clock set back, or ahead by more than a day: the row follows the one before by 1 ms"

func mustRead(t *testing.T, text string) *drivelog.Drive {
	t.Helper()
	d, err := drivelog.Read(strings.NewReader(text), "drive.csv", nil)
	testkit.NoError(t, err)
	checkSums(t, d)
	return d
}

func zip(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	testkit.NoError(t, err)
	testkit.NoError(t, z.Close())
	return out.Bytes()
}

func TestUnitsInAnyEncoding(t *testing.T) {
	for name, degree := range map[string]string{
		"UTF-8":                 "\u00b0",
		"Windows-1252":          "\xb0",
		"UTF-8 read as Windows": "\u00c2\u00b0",
		"no unit at all":        "",
	} {
		for _, mark := range []string{"", "\xef\xbb\xbf"} {
			d := mustRead(t, mark+"Time,Intake Air Temperature ["+degree+"C],\"Vehicle Speed Sensor [km/h]\"\r\n"+
				"10:00:00.000,20,\r\n10:00:00.100,20,42.0\r\n")
			v, ok := d.Rows[0].Readings.Value(signal.OBDSpeed)
			if d.Format != "KIT" || !ok || v != 42 {
				t.Errorf("%s: got a %s log, speed %v, want KIT, 42", name, d.Format, v)
			}
		}
	}
}

func TestNamelessAndRepeatedColumns(t *testing.T) {
	d := mustRead(t, ";VehicleSpeedInstantaneous;VehicleSpeedAverage;traffic;;VehicleSpeedInstantaneous\n"+
		"7;3,5;1;HighCongestionCondition;8;99\n")
	r := &d.Rows[0]
	if v, _ := r.Readings.Value(signal.OBDSpeed); v != 3.5 || r.Label != driving.Jam {
		t.Errorf("got speed %v, label %v, want 3.5, %v", v, r.Label, driving.Jam)
	}
}

func TestUnknownHeader(t *testing.T) {
	for name, text := range map[string]string{
		"empty":        "",
		"blank":        "\n\r\n  \n",
		"page":         "<!doctype html><title>secret</title>",
		"binary":       "\x00\x01secret\xff\n\x00",
		"other log":    "secret,lat,lon\n1,2,3\n",
		"no speed":     "Time,secret\n10:00:00,1\n",
		"wide":         "Time,Vehicle Speed Sensor,secret" + strings.Repeat(",x", 1000) + "\n",
		"rows first":   "10:00:00.000,secret\nTime,Vehicle Speed Sensor\n",
		"no time":      "Vehicle Speed,secret\n1,2\n",
		"wrong commas": "Time|Vehicle Speed Sensor|secret\n10:00:00|3|1\n",
	} {
		_, err := drivelog.Read(strings.NewReader(text), "upload", nil)
		if err == nil || !strings.Contains(err.Error(), "the first line is not the header of a known log") {
			t.Errorf("%s: got %v, want that the header is of no known log", name, err)
			continue
		}
		msg := err.Error()
		if !strings.Contains(msg, "carstate format list") {
			t.Errorf("%s: got %q, want the command that helps", name, msg)
		}
		if strings.Contains(msg, "secret") || strings.Contains(msg, "\n") {
			t.Errorf("%s: got %q, want one line without the content", name, msg)
		}
	}
}

func TestNoUsableRow(t *testing.T) {
	for text, want := range map[string]string{
		"ts,rpm,speed\n":                     "a pyobd log without a usable row",
		"ts,rpm,speed\nnever,900,3\n":        "no readable time",
		"ts,rpm,speed\n1700000000000,,\n":    "every cell is blank or unreadable",
		"ts,rpm,speed\n1700000000000,,1e9\n": "the only readings are outside what their sensors can give",
	} {
		_, err := drivelog.Read(strings.NewReader(text), "x.csv", nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "x.csv: ") {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestOpen_Unreadable(t *testing.T) {
	if _, err := drivelog.Open(t.Context(), "testdata/absent.csv", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: got %v, want %v", err, os.ErrNotExist)
	}
	if _, err := drivelog.Open(t.Context(), "testdata", nil); err == nil {
		t.Error("a directory: got a drive, want an error")
	}
}

// The last row before the damage is left out: 6 may be of 60.5.
func TestDamagedGzip(t *testing.T) {
	var text strings.Builder
	text.WriteString("time_s,v_Vehicle[km|h]\n")
	for i := range 5000 { // the zeros make it hard to compress evenly
		fmt.Fprintf(&text, "%s%d.%d,%d.%d\n", strings.Repeat("0", i%7), i, i*7919%10, i%90, i*i%1000)
	}
	whole := mustRead(t, text.String())
	packed := zip(t, []byte(text.String()))

	cut := packed[:len(packed)/2]
	corrupt := bytes.Clone(packed)
	corrupt[len(corrupt)-6] ^= 0xff // in the checksum
	for name, file := range map[string][]byte{
		"cut off":         cut,
		"checksum wrong":  corrupt,
		"rubbish follows": append(bytes.Clone(packed), "rubbish"...),
	} {
		d, err := drivelog.Read(bytes.NewReader(file), name, nil)
		if err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
			continue
		}
		if len(d.Mended) != 1 || d.Mended[0].Reason != "file ends early or damaged: read up to there" {
			t.Errorf("%s: got %v, want that the file ends early", name, d.Notes())
		}
		if n := len(d.Rows); n < 1000 || !reflect.DeepEqual(d.Rows, whole.Rows[:n]) {
			t.Errorf("%s: got %d rows, want 1000 or more, the first of the whole", name, n)
		}
	}
	if _, err := drivelog.Read(bytes.NewReader(packed[:5]), "head only", nil); err == nil {
		t.Error("five bytes of gzip: got a drive, want an error")
	}
}

func TestReaderFails(t *testing.T) {
	broken := errors.New("disk gone")
	r := io.MultiReader(strings.NewReader("time_s,v_vehicle\n1,2\n"), iotest.ErrReader(broken))
	if _, err := drivelog.Read(r, "x", nil); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: got %v, want %v", err, broken)
	}
}

func TestRead_EnforcesLimits(t *testing.T) {
	row := "1,2\n"
	head := "time_s,v_vehicle\n"
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"too many bytes": {head + row + strings.Repeat("\n", 1<<16), "1 GiB"},
		"long row":       {head + row + strings.Repeat("9", 1<<13), "longer than 4096 bytes"},
		"long header":    {strings.Repeat("t", 1<<13), "longer than 4096 bytes"},
		"too many rows":  {head + strings.Repeat(row, 1001), "more than 1000 rows"},
	} {
		for _, file := range [][]byte{[]byte(c.text), zip(t, []byte(c.text))} {
			if _, err := drivelog.ReadSmall(bytes.NewReader(file)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
		}
	}
	if _, err := drivelog.ReadSmall(strings.NewReader(head + strings.Repeat(row, 1000))); err != nil {
		t.Errorf("within all bounds: got %v, want no error", err)
	}
	long := head + strings.Repeat("1", 1<<20+1)
	if _, err := drivelog.Read(strings.NewReader(long), "x", nil); err == nil ||
		!strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("a row over 1 MiB: got %v, want an error that says so", err)
	}
}

func TestClocks_BackAndAhead(t *testing.T) {
	const kit = "Time,Vehicle Speed Sensor\n"
	for name, c := range map[string]struct {
		text string
		want []string // times of the rows
		set  bool     // a clock was set
	}{
		"midnight": {kit + "23:59:59.900,1\n00:00:00.100,2\n", []string{"0s", "200ms"}, false},
		"set back a little": {kit + "10:00:01.000,1\n10:00:00.960,2\n10:00:01.060,3\n",
			[]string{"0s", "1ms", "101ms"}, true},
		"set back over night": {kit + "00:00:00.100,1\n23:59:59.900,2\n00:00:00.000,3\n",
			[]string{"0s", "1ms", "101ms"}, true},
		"summer time ends": {kit + "02:59:59.000,1\n02:00:00.000,2\n02:00:01.000,3\n",
			[]string{"0s", "1ms", "1.001s"}, true},
		"long gap": {kit + "10:00:00,1\n21:00:00,2\n", []string{"0s", "11h0m0s"}, false},
		"clock found late": {"ts,rpm,speed\n946684800000,900,1\n1700000000000,910,2\n1700000001000,920,3\n",
			[]string{"0s", "1ms", "1.001s"}, true},
		"one wild time": {"time_s,v_vehicle\n1.0,1\n9000000,2\n1.2,3\n1.3,4\n", []string{"0s", "1ms", "2ms", "102ms"},
			true},
	} {
		d := mustRead(t, c.text)
		var got []string
		for _, r := range d.Rows {
			got = append(got, r.At.String())
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got rows at %v, want %v", name, got, c.want)
		}
		if set := len(d.Mended) > 0 && d.Mended[0].Reason == clockSet; set != c.set {
			t.Errorf("%s: got a set clock %t, want %t", name, set, c.set)
		}
	}
}

// The files consist only of gaps, which add up to four years.
func TestTimeNeverOverflows(t *testing.T) {
	const year = 366 * 24 * time.Hour
	for _, c := range []struct {
		head, row string
		begin, ms int // the first time, and milliseconds for each unit of time
	}{
		{"ts,rpm,speed\n", "%d,900,%d\n", 1_700_000_000_000, 1},
		{"ENGINE_RUN_TINE (),VEHICLE_SPEED ()\n", "%d,%d,\n", 0, 1000},
	} {
		text := c.head
		for i := range 3_000 {
			text += fmt.Sprintf(c.row, c.begin+i%2*86_000_000/c.ms, i%50) // a day ahead and back again
		}
		if d := mustRead(t, text); d.Duration() < year || d.Duration() > 2*year {
			t.Errorf("%s: got %v long, want %v to twice as long", d.Format, d.Duration(), year)
		}
	}
}

// Time also passes while the engine is off and its clock shows 0.
func TestRunTime_SpreadsRows(t *testing.T) {
	d := mustRead(t, "ENGINE_RUN_TIME (),VEHICLE_SPEED ()\n"+
		"0.0,1,\n0.0,2,\n0.0,3,\n0.0,4,\n0.0,5,\n0.0,6,\n2.0,7,\n2.0,8,\n2.0,9,\n2.0,10,\n4.0,11,\n500.0,12,\n1.0,13,\n")
	want := []int64{0, 490, 980, 1470, 1960, 2450, 2940, 3440, 3940, 4440, 4940, 500940, 501430}
	for i, r := range d.Rows {
		if r.At.Milliseconds() != want[i] {
			t.Errorf("row %d: got it at %v, want %d ms", i, r.At, want[i])
		}
	}
	if len(d.Rows) != len(want) || len(d.Mended) != 1 || d.Mended[0].Reason != "engine run time starts again: the row follows the one before" {
		t.Errorf("got %d rows, %v, want %d, and that the run time starts again", len(d.Rows), d.Notes(), len(want))
	}
}
