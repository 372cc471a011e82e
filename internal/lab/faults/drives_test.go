package faults_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

type aDrive struct {
	car, name string
	samples   []vehicle.Sample
}

const start = signal.UnixMilli(1_790_000_000_000)

// The tests of this package do not run in parallel, so they read drives once.
var drives struct {
	read bool
	all  []aDrive
	err  error
}

// recorded returns the published drives with a throttle or a pedal sensor. No test changes them.
func recorded(t testing.TB) []aDrive {
	if !drives.read {
		drives.all, drives.err = readRecorded()
		drives.read = true
	}
	testkit.NoError(t, drives.err)
	return drives.all
}

func readRecorded() (drives []aDrive, err error) {
	dir := testkit.RecordedDrives("faults are put into invented drives only")
	if dir == "" {
		return nil, nil
	}
	for _, c := range []struct {
		folder string
		files  int
	}{{"kit_obd", 38}, {"carobd", 54}, {"pyobd", 1}, {"hil", 1}} {
		files, err := filepath.Glob(filepath.Join(dir, c.folder, "*.csv*"))
		if err != nil || len(files) < c.files {
			return nil, fmt.Errorf("%d drives in %s, want %d or more: %v", len(files), c.folder, c.files, err)
		}
		for _, file := range files {
			d, err := drivelog.Open(context.Background(), file, nil)
			if err != nil {
				return nil, err
			}
			one := aDrive{car: c.folder, name: strings.TrimSuffix(filepath.Base(file), ".csv.gz")}
			for i := range d.Rows {
				one.samples = append(one.samples, vehicle.Sample{Vehicle: "car", Time: start.Add(d.Rows[i].At),
					Readings: d.Rows[i].Readings})
			}
			drives = append(drives, one)
			if c.folder == "carobd" {
				drives = append(drives,
					one.only("carobd, A and load", signal.OBDSpeed, signal.EngineSpeed, signal.EngineLoad,
						signal.ThrottlePosition),
					one.only("carobd, A and D", signal.OBDSpeed, signal.EngineSpeed, signal.ThrottlePosition,
						signal.AcceleratorPositionD))
			}
		}
	}
	return drives, nil
}

func (d aDrive) only(car string, signals ...signal.Signal) aDrive {
	out := aDrive{car: car, name: d.name}
	for i := range d.samples {
		x := vehicle.Sample{Vehicle: "car", Time: d.samples[i].Time}
		copyReadings(&x.Readings, &d.samples[i].Readings,
			func(g signal.Signal) bool { return slices.Contains(signals, g) })
		if !x.Empty() {
			out.samples = append(out.samples, x)
		}
	}
	return out
}

// inventedCars have no recordings. foot is from 0 to 100, and plate follows it.
var inventedCars = map[string]func(foot, plate float64) map[signal.Signal]float64{
	"petrol": func(foot, plate float64) map[signal.Signal]float64 {
		return map[signal.Signal]float64{
			signal.ThrottlePosition: 17 + 0.7*plate, signal.ThrottlePositionB: min(49+0.7*plate, 99.2),
			signal.ThrottleActuator:     17 + 0.7*plate,
			signal.AcceleratorPositionD: 16 + 0.6*foot, signal.AcceleratorPositionE: 31.7 + 0.6*foot,
			signal.EngineLoad: 25 + 0.7*foot,
		}
	},
	// The second sensor of each pair runs against the first, or at half its slope.
	"opposed": func(foot, plate float64) map[signal.Signal]float64 {
		return map[signal.Signal]float64{
			signal.ThrottlePosition: 15 + 0.6*plate, signal.ThrottlePositionB: 85 - 0.6*plate,
			signal.AcceleratorPositionD: 15 + 0.7*foot, signal.AcceleratorPositionE: 7.5 + 0.35*foot,
		}
	},
	"diesel": func(foot, _ float64) map[signal.Signal]float64 {
		return map[signal.Signal]float64{
			signal.ThrottlePosition: 83.5, signal.AcceleratorPositionD: 14 + 0.7*foot,
			signal.AcceleratorPositionE: 14.4 + 0.7*foot,
		}
	},
	"one sensor": func(foot, plate float64) map[signal.Signal]float64 {
		return map[signal.Signal]float64{signal.ThrottlePosition: 17 + 0.7*plate, signal.EngineLoad: 25 + 0.7*foot}
	},
}

// The foot moves every 2 to 12 s, within half a second.
func invented(t testing.TB, car string, seed uint64, long, every time.Duration) aDrive {
	d := aDrive{car: car, name: fmt.Sprintf("%d, every %v", seed, every)}
	random := rand.New(rand.NewPCG(seed, 0))
	const tick = 50 * time.Millisecond
	var foot, plate, aim float64
	var until, next time.Duration
	for now := time.Duration(0); now < long; now += tick {
		if now >= until {
			until = now + time.Duration(2000+random.IntN(10_000))*time.Millisecond
			if aim = 0; random.IntN(3) > 0 {
				aim = random.Float64() * 70
			}
		}
		foot += (aim - foot) * 0.2
		plate += (foot - plate) * 0.4
		if now < next {
			continue
		}
		next = now + every
		x := vehicle.Sample{Vehicle: "car", Time: start.Add(now)}
		for g, v := range inventedCars[car](foot, plate) {
			testkit.NoError(t, x.Set(g, math.Round(min(max(v, 0), 100)*255/100)*100/255))
		}
		d.samples = append(d.samples, x)
	}
	return d
}

func (d aDrive) together(every time.Duration) aDrive {
	out := aDrive{d.car, fmt.Sprintf("%s, together every %v", d.name, every), nil}
	var newest signal.Readings
	next := d.samples[0].Time.Add(every)
	for i := range d.samples {
		x := &d.samples[i]
		copyReadings(&newest, &x.Readings, func(signal.Signal) bool { return true })
		if x.Time >= next && !newest.Empty() {
			out.samples = append(out.samples, vehicle.Sample{Vehicle: "car", Time: x.Time, Readings: newest})
			newest, next = signal.Readings{}, x.Time.Add(every)
		}
	}
	return out
}

// thinned keeps a reading of each signal in every, with its own time stamp.
func (d aDrive) thinned(every time.Duration) aDrive {
	return d.readEvery(every, fmt.Sprintf("%s, thinned to %v", d.name, every), [signal.Num]signal.UnixMilli{})
}

// readEvery keeps the first reading at or after due, and one in each interval after it.
func (d aDrive) readEvery(every time.Duration, name string, due [signal.Num]signal.UnixMilli) aDrive {
	out := aDrive{d.car, name, nil}
	for i := range d.samples {
		x := vehicle.Sample{Vehicle: "car", Time: d.samples[i].Time}
		copyReadings(&x.Readings, &d.samples[i].Readings, func(g signal.Signal) bool {
			if x.Time < due[g] {
				return false
			}
			due[g] = x.Time.Add(every)
			return true
		})
		if !x.Empty() {
			out.samples = append(out.samples, x)
		}
	}
	return out
}

func copyReadings(to, from *signal.Readings, which func(signal.Signal) bool) {
	for g := range signal.Signal(signal.Num) {
		if v, ok := from.Value(g); ok && (g < signal.DTCList || g >= signal.FreeFlowSpeed) && which(g) {
			if to.Set(g, float64(v)) != nil {
				panic("a reading that was accepted is refused")
			}
		}
	}
}

func (d aDrive) anomaly(s *vehicle.State) (at signal.UnixMilli, why string) {
	for _, x := range d.samples {
		*s = vehicle.Observe(*s, x)
		if v := s.Throttle(); at == 0 && v.Time != 0 && v.System == throttle.Anomaly {
			at, why = x.Time, explained(s.ExplainThrottle())
		}
	}
	return at, why
}

func explained(e signal.Explanation) string {
	words := []string{e.Rule + ":"}
	for _, f := range e.Facts {
		threshold := ""
		if !math.IsNaN(f.Threshold) {
			threshold = fmt.Sprintf(" of %g", f.Threshold)
		}
		words = append(words, fmt.Sprintf("%s %.1f%s %s at %.1f s;", f.Name, f.Value, threshold, f.Unit,
			f.Time.Sub(start).Seconds()))
	}
	return strings.Join(words, " ")
}
