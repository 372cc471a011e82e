package drivelog_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/signal"
)

// Models know when each sensor was read, and write forward-filled rows like real loggers. The
// package may report only such readings.

var kitColumns = []struct {
	name   string
	signal signal.Signal
}{
	{"Engine RPM [RPM]", signal.EngineSpeed},
	{"Vehicle Speed Sensor [km/h]", signal.OBDSpeed},
	{"Absolute Throttle Position [%]", signal.ThrottlePosition},
	{"Accelerator Pedal Position D [%]", signal.AcceleratorPositionD},
	{"Accelerator Pedal Position E [%]", signal.AcceleratorPositionE},
}

type truth struct {
	at     time.Duration
	signal signal.Signal
	value  float32
}

// A read that fails writes no row, and the logger goes on to the next sensor.
func kitLog(t *rapid.T, mayFail bool) (text string, truths []truth) {
	var b strings.Builder
	b.WriteString("Time")
	for _, c := range kitColumns {
		b.WriteString("," + c.name)
	}
	b.WriteString("\n")
	shown := make([]string, len(kitColumns))
	ms, turn, rpm := 0, 0, 800
	values := make([]int, len(kitColumns))
	for range rapid.IntRange(20, 120).Draw(t, "rows") {
		ms += rapid.IntRange(60, 200).Draw(t, "step")
		// If the reads of a whole cycle fail, there is a pause.
		if mayFail && rapid.IntRange(0, 15).Draw(t, "fails") == 0 {
			turn++
			ms += 60
		}
		if mayFail && rapid.IntRange(0, 30).Draw(t, "pauses") == 0 {
			turn += rapid.IntRange(0, 7).Draw(t, "lost in the pause")
			ms += 5000
		}
		c := turn % len(kitColumns)
		turn++
		if c == 0 {
			rpm++ // the engine speed is never quite the same twice
			values[c] = rpm
		} else if rapid.Bool().Draw(t, "moves") {
			values[c] = rapid.IntRange(0, 100).Draw(t, "value")
		}
		shown[c] = strconv.Itoa(values[c])
		at := time.Duration(ms) * time.Millisecond
		truths = append(truths, truth{at, kitColumns[c].signal, float32(values[c])})
		fmt.Fprintf(&b, "%s,%s\n", time.Time{}.Add(at).Format("15:04:05.000"), strings.Join(shown, ","))
	}
	first := truths[0].at
	for i := range truths {
		truths[i].at -= first
	}
	return b.String(), truths
}

func readingsOf(d *drivelog.Drive) (all []truth) {
	for i := range d.Rows {
		for s := range signal.Signal(signal.Num) {
			if v, ok := d.Rows[i].Readings.Value(s); ok {
				all = append(all, truth{d.Rows[i].At, s, v})
			}
		}
	}
	return all
}

func TestRoundRobinYieldsOnlyTrueReadings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, truths := kitLog(t, true)
		d, err := drivelog.Read(strings.NewReader(text), "kit", nil)
		if err != nil {
			t.Fatalf("the log: got %v, want no error\n%s", err, text)
		}
		real := make(map[truth]bool, len(truths))
		for _, x := range truths {
			real[x] = true
		}
		for _, x := range readingsOf(d) {
			if !real[x] {
				t.Fatalf("%s %g at %v: got it, want only what was read\n%s", x.signal, x.value, x.at, text)
			}
		}
	})
}

// With a sound connection, repeated values are found, too.
func TestRoundRobinYieldsAllReadings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, truths := kitLog(t, false)
		d, err := drivelog.Read(strings.NewReader(text), "kit", nil)
		if err != nil {
			t.Fatalf("the log: got %v, want no error\n%s", err, text)
		}
		got := readingsOf(d)
		// The engine speed changes each time, so only the sensors after its last reading are in
		// doubt.
		if missing := len(truths) - len(got); missing < 0 || missing >= len(kitColumns) {
			t.Fatalf("readings: got %d, want %d, less %d at most\n%s", len(got), len(truths), len(kitColumns)-1, text)
		}
		for i, x := range got {
			if x != truths[i] {
				t.Fatalf("reading %d: got %v, want %v\n%s", i, x, truths[i], text)
			}
		}
	})
}

// polled in this order, all in 1.8 s
var snapshotColumns = []struct {
	name   string
	signal signal.Signal
}{
	{"ENGINE_LOAD ()", signal.EngineLoad},
	{"VEHICLE_SPEED ()", signal.OBDSpeed},
	{"THROTTLE ()", signal.ThrottlePosition},
	{"ABSOLUTE_THROTTLE_B ()", signal.ThrottlePositionB},
	{"PEDAL_D ()", signal.AcceleratorPositionD},
	{"PEDAL_E ()", signal.AcceleratorPositionE},
}

// The model reads a sensor every 0.3 s, and writes a row every 0.49 s. A reading must be from the
// four rows before, and those of a sensor are at most two cycles apart.
func TestSnapshotsYieldOnlyRecentReadings(t *testing.T) {
	const poll, cycleMs = 300, 1800
	rapid.Check(t, func(t *rapid.T) {
		n := len(snapshotColumns)
		var b strings.Builder
		b.WriteString("ENGINE_RUN_TINE ()")
		for _, c := range snapshotColumns {
			b.WriteString("," + c.name)
		}
		b.WriteString("\n")

		values := make([]int, n)
		reads := make([]map[int]int, n) // per column: time and value of each read
		for c := range reads {
			reads[c] = map[int]int{}
		}
		rows := rapid.IntRange(10, 80).Draw(t, "rows")
		next, k := 0, 0
		for row := range rows {
			for ; next <= row*490; next += poll {
				c := k % n
				k++
				if rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
					values[c] = rapid.IntRange(0, 100).Draw(t, "value")
				}
				reads[c][next] = values[c]
			}
			// The engine is off: run time 0, rows 0.49 s apart.
			fmt.Fprintf(&b, "0.0,%s,\n", strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", ","), "[]"))
		}
		d, err := drivelog.Read(strings.NewReader(b.String()), "carobd", nil)
		if err != nil {
			t.Fatalf("the log: got %v, want no error\n%s", err, &b)
		}
		last := map[signal.Signal]time.Duration{}
		for _, x := range readingsOf(d) {
			ms := int(x.at.Milliseconds())
			found := ms < 4*490
			for c, col := range snapshotColumns {
				for at, v := range reads[c] {
					found = found || col.signal == x.signal && float32(v) == x.value && at <= ms && at > ms-4*490
				}
			}
			if !found {
				t.Fatalf("%s %g at %v: got it, want what the cycle before read\n%s", x.signal, x.value, x.at, &b)
			}
			if x.at-last[x.signal] > 2*cycleMs*time.Millisecond {
				t.Fatalf("%s: got nothing from %v to %v, want a reading", x.signal, last[x.signal], x.at)
			}
			last[x.signal] = x.at
		}
	})
}
