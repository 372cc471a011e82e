//go:build !race

package faults_test

import (
	"fmt"
	"testing"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// If every row repeats old readings, at most 5 % of the healthy drives have an anomaly. With
// -table, the test prints the table of docs/verdicts.md.
func TestForwardFilledFeeds(t *testing.T) {
	testkit.Slow(t, "it runs the rules over every recorded drive, in many ways")
	counts := map[string]int{}
	rows, rowsWrong := 0, 0
	for n, d := range recorded(t) {
		if d.car != "kit_obd" && d.car != "carobd" || !*full && n%10 != 0 {
			continue
		}
		for _, every := range []time.Duration{0, 2 * time.Second, 5 * time.Second, 10 * time.Second} {
			read := d
			if every > 0 {
				read = d.inTurn(every)
			}
			for what, fed := range map[string]aDrive{"as read": read, "repeated each second": read.filled(time.Second),
				"repeated in each row": read.filledRows()} {
				var s vehicle.State
				at, why := fed.anomaly(&s)
				if at != 0 {
					counts[fmt.Sprintf("%s, read every %v, %s", d.car, every, what)]++
				}
				if every == 0 && what == "repeated in each row" {
					rows++
					if at != 0 {
						rowsWrong++
					}
				}
				if at != 0 && every == 0 && what == "as read" {
					t.Errorf("%s/%s: got an anomaly at %v, want none: %s", d.car, d.name, at.Sub(start), why)
				}
			}
		}
	}
	if rowsWrong*20 > rows {
		t.Errorf("anomalous when rows repeat old readings: got %d of %d healthy drives, want 1 of 20", rowsWrong, rows)
	}
	if *table {
		fmt.Println("drives with an anomaly (0s: read as recorded):", counts)
	}
}

// inTurn is as from a logger that reads one signal after another.
func (d aDrive) inTurn(every time.Duration) aDrive {
	var due [signal.Num]signal.UnixMilli
	for g := range due {
		due[g] = d.samples[0].Time.Add(every * time.Duration(g) / signal.Num)
	}
	return d.readEvery(every, d.name, due)
}

// filledRows repeats the newest value of every signal in each row, as most loggers do.
func (d aDrive) filledRows() aDrive {
	out := aDrive{car: d.car, name: d.name}
	var newest signal.Readings
	for _, x := range d.samples {
		copyReadings(&newest, &x.Readings, func(signal.Signal) bool { return true })
		x.Readings = newest
		out.samples = append(out.samples, x)
	}
	return out
}

// filled is as from a gateway that sends the newest reading of every signal, however old, as new.
func (d aDrive) filled(every time.Duration) aDrive {
	out := aDrive{car: d.car, name: d.name}
	var newest signal.Readings
	next, last := d.samples[0].Time, d.samples[0].Time
	for i := range d.samples {
		x := &d.samples[i]
		if x.Time.Sub(last) > time.Minute {
			next = x.Time // the gateway was off
		}
		for last = x.Time; next < x.Time; next = next.Add(every) {
			out.samples = append(out.samples, vehicle.Sample{Vehicle: "car", Time: next, Readings: newest})
		}
		copyReadings(&newest, &x.Readings, func(signal.Signal) bool { return true })
	}
	return out
}
