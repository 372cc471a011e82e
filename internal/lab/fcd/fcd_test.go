package fcd_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/fcd"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fleet.csv")
	testkit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func zipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	testkit.NoError(t, err)
	testkit.NoError(t, z.Close())
	return b.String()
}

const small = "vehicle,time,latitude,longitude,speed\nA,0,44.5,11.25,0\nB,0.25,,,50\nA,12.5,-44.5,-11.25,31.5\nB,13,,,\n"

func described(t *testing.T, path string, base signal.UnixMilli) []string {
	t.Helper()
	f, err := fcd.Open(t.Context(), path)
	testkit.NoError(t, err)
	var all []string
	for x, err := range f.Samples(t.Context(), base) {
		testkit.NoError(t, err)
		line := fmt.Sprintf("%s %d", x.Vehicle, x.Time)
		for s := range signal.Signal(signal.Num) {
			if v, ok := x.Value(s); ok {
				line += fmt.Sprintf(" %s=%g", s, v)
			}
		}
		all = append(all, line)
	}
	return all
}

func TestSamples_AnyNotation(t *testing.T) {
	const lat, lon = "Vehicle.CurrentLocation.Latitude", "Vehicle.CurrentLocation.Longitude"
	want := []string{
		"A 1000000 Vehicle.Speed=0 " + lat + "=44.5 " + lon + "=11.25",
		"B 1000250 Vehicle.Speed=50",
		"A 1012500 Vehicle.Speed=31.5 " + lat + "=-44.5 " + lon + "=-11.25",
	}
	for name, text := range map[string]string{
		"plain":       small,
		"gzip":        zipped(t, small),
		"Windows":     "\xef\xbb\xbf" + strings.ReplaceAll(small, "\n", "\r\n"),
		"other order": "speed,lane,Longitude,Latitude,Time,Vehicle\n0,a,11.25,44.5,0,A\n50,,,,0.25,B\n31.5,c,-11.25,-44.5,12.5,A\n",
		"quoted": "\"vehicle\",\"time\",\"latitude\",\"longitude\",\"speed\",\"note\"\n" +
			"\"A\",0,44.5,11.25,0,\"a, b\"\n\"B\",.25,,,50,\n\"A\",12.5,-44.5,-11.25,31.5,\"\"\n",
		"spaces":          "vehicle, time, latitude, longitude, speed\nA, 0, 44.5, 11.25, 0\nB, 0.25, , , 50\n\nA, 12.5, -44.5, -11.25, 31.5\n",
		"no last newline": strings.TrimSuffix(small, "\nB,13,,,\n"),
	} {
		if got := described(t, file(t, text), 1_000_000); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}

	got := described(t, file(t,
		"accuracy,vehicle,time,latitude,longitude,speed,heading\n4.5,A,1,1,2,3,270\n,A,2,1,2,3,\n"), 0)
	if want := []string{
		"A 1000 Vehicle.Speed=3 " + lat + "=1 " + lon +
			"=2 Vehicle.CurrentLocation.Heading=270 Vehicle.CurrentLocation.HorizontalAccuracy=4.5",
		"A 2000 Vehicle.Speed=3 " + lat + "=1 " + lon + "=2",
	}; !slices.Equal(got, want) {
		t.Errorf("with heading and accuracy: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOpen_Contents(t *testing.T) {
	f, err := fcd.Open(t.Context(), file(t, strings.Replace(small, "A,0,", "C,0.2,", 1)))
	testkit.NoError(t, err)
	if !slices.Equal(f.Vehicles, []vehicle.ID{"A", "B", "C"}) || f.Readings != 3 || f.First != 200*time.Millisecond ||
		f.Last != 12500*time.Millisecond {
		t.Errorf("got %+v, want 3 readings of A, B and C from 0.2 to 12.5 s", f)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	long := file(t, "vehicle,time,latitude,longitude,speed\n"+strings.Repeat("A,1,,,50\n", 4096))
	if _, err := fcd.Open(ended, long); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context ended: got %v, want %v", err, context.Canceled)
	}
}

// No error repeats the content, or has two lines.
func TestOpen_RefusesInvalid(t *testing.T) {
	const header = "vehicle,time,latitude,longitude,speed\n"
	const good = header + "A,1,44.5,11.25,10\n"
	for _, c := range []struct{ text, want string }{
		{"", "fleet.csv, line 1: the file is empty"},
		{"vehicle,time,latitude,speed\nA,1,44.5,10\n",
			"line 1: there is no column longitude; the columns must be named vehicle, time, latitude, longitude, speed"},
		{"vehicle,time,time,latitude,longitude,speed\n", "line 1: two columns are named time"},
		{header, "fleet.csv: there is no reading in it"},
		{good + "x-98765,2,44.5,11.25,10\n", "line 3: a vid consists of ASCII letters and digits only"},
		{good + ",2,44.5,11.25,10\n", "line 3: a vid must not be empty"},
		{good + strings.Repeat("v", 257) + ",2,44.5,11.25,10\n", "line 3: a vid has at most 256"},
		{good + "A,98765s,44.5,11.25,10\n", "line 3: the time must be a number of seconds"},
		{good + "A,-98765,44.5,11.25,10\n", "line 3: the time must"},
		{good + "A,NaN,44.5,11.25,10\n", "line 3: the time must"},
		{good + "A,2,98765,11.25,10\n",
			"line 3: impossible value: Vehicle.CurrentLocation.Latitude must be between -90 and 90 degrees"},
		{good + "A,2,44.5,11.25,98765\n", "line 3: impossible value: Vehicle.Speed must"},
		{good + "A,2,44.5,nan,10\n", "line 3: impossible value: Vehicle.CurrentLocation.Longitude must"},
		{good + "A,2,44.5,11.25,x98765\n", "line 3: speed must be a number"},
		{good + "\nA,0.5,44.5,11.25,98765\n", "line 4: impossible value"},
		{good + "A,0.5,44.5,11.25,10\n", "line 3: its time is before that of the row above; sort"},
		{good + "A,2,44.5\n", "line 3: the row has more or fewer cells"},
		{good + "\"A,2,44.5,11.25,10\n" + strings.Repeat("A,2,44.5,11.25,10\n", 10_000),
			"line 3: the row is longer than 65536 bytes"},
		{good + "A\"98765,2,44.5,11.25,10\n", "line 3: bare"},
		{good + "A,40000000,44.5,11.25,10\n", "fleet.csv: its readings span more than a year"},
		{zipped(t, small)[:60], "the file ends early or is damaged"},
		{"\x1f\x8bnothing", "the file ends early or is damaged"},
	} {
		_, err := fcd.Open(t.Context(), file(t, c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "98765") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: got %v, want one line with %q", c.text, err, c.want)
		}
	}
	dir := t.TempDir()
	if _, err := fcd.Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: got %v, want not a regular file", err)
	}
	if _, err := fcd.Open(t.Context(), filepath.Join(dir, "none.csv")); err == nil ||
		err.Error() != "none.csv cannot be read: no such file or directory" {
		t.Errorf("no file: got %v, want that none.csv cannot be read", err)
	}
}

func TestTooManyVehicles(t *testing.T) {
	var b strings.Builder
	b.WriteString("vehicle,time,latitude,longitude,speed\n")
	for i := range 100_001 {
		fmt.Fprintf(&b, "V%d,0,,,50\n", i)
	}
	if _, err := fcd.Open(t.Context(), file(t, b.String())); err == nil ||
		!strings.Contains(err.Error(), "line 100002: there are more than 100000 vehicles") {
		t.Errorf("100001 vehicles: got %v, want an error in line 100002", err)
	}
}

func TestReadLabels(t *testing.T) {
	const header = "vehicle,time,truth,sure,share\n"
	got, err := fcd.ReadLabels(t.Context(), file(t,
		header+"B,20,jam,1,0.2\nB,30.5,slow,0,0.5\nA,20,normal,1,0.9\nA,10,slow,1,0.5\n"))
	want := []fcd.Label{
		{"A", 10 * time.Second, driving.Slow, true},
		{"B", 20 * time.Second, driving.Jam, true},
		{"A", 20 * time.Second, driving.Normal, true},
		{"B", 30500 * time.Millisecond, driving.Slow, false},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, c := range []struct{ text, want string }{
		{header, "there is no label in it"},
		{"vehicle,time,truth\n", "there is no column sure"},
		{header + "A,1,queue98765,1,\n", "line 2: truth must be normal, slow or jam"},
		{header + "A,1,jam,yes,\n", "line 2: sure must be 0 or 1"},
		{header + "A,,jam,1,\n", "line 2: the time must"},
		{header + "x-98765,1,jam,1,\n", "line 2: a vid"},
		{header + "A,1,jam,1,\nA,1\n", "line 3: the row has"},
	} {
		if _, err := fcd.ReadLabels(t.Context(), file(t, c.text)); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "98765") {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := fcd.ReadLabels(t.Context(), filepath.Join(t.TempDir(), "none.csv")); err == nil {
		t.Error("no file: got no error, want one")
	}
}

func FuzzSamples(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(zipped(f, small)))
	f.Add([]byte("speed,accuracy,heading,longitude,latitude,time,vehicle\n1,2,3,4,5,6,A\n"))
	f.Add([]byte("vehicle,time,latitude,longitude,speed\n\"A\",1e3,0x1p-2,inf,\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		last := signal.UnixMilli(math.MinInt64)
		fleet, err := fcd.Open(t.Context(), file(t, string(text)))
		if err != nil {
			checkError(t, err)
			return
		}
		for x, err := range fleet.Samples(t.Context(), 7) {
			if err != nil {
				t.Fatalf("what Open accepts: got %v, want no error", err)
			}
			if id, err := vehicle.ParseID(string(x.Vehicle)); err != nil || len(id) > vehicle.MaxReportingID ||
				x.Time < last || x.Time < 7 || x.Empty() {
				t.Fatalf("a sample: got %+v, want a valid one, not before %d", x, last)
			}
			last = x.Time
			var again signal.Readings
			for s := range signal.Signal(signal.Num) {
				if v, ok := x.Value(s); ok && again.Set(s, float64(v)) != nil {
					t.Fatalf("%s: got %g, want a value that may be set", s, v)
				}
			}
		}
	})
}

func FuzzLabels(f *testing.F) {
	f.Add([]byte("vehicle,time,truth,sure,share\nB,20,jam,1,0.2\nA,10,slow,0,0.5\nA,10.5,normal,0,\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := fcd.ReadLabels(t.Context(), file(t, string(text)))
		if err != nil {
			checkError(t, err)
		}
		last := time.Duration(0)
		for _, l := range all {
			if vehicle.CheckID(string(l.Vehicle)) != nil || l.At < last || l.Truth < driving.Normal ||
				l.Truth > driving.Jam {
				t.Fatalf("a label: got %+v, want a valid one, not before %s", l, last)
			}
			last = l.At
		}
	})
}

func checkError(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); len(text) > 200 || strings.Contains(text, "\n") ||
		!strings.HasPrefix(text, "fleet.csv, line ") && !strings.HasPrefix(text, "fleet.csv: ") {
		t.Fatalf("the error: got %q, want one short line with a place", text)
	}
}
