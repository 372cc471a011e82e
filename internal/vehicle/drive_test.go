package vehicle_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// Each file in testdata/drives is a short drive with the verdicts that it must lead to. A line is one of
//
//	# what the story is about
//	90s speed=50 engine=900        a sample, 90 s after the drive's start
//	+1s speed=50                   … or 1 s after the previous sample
//	+1s x120 speed=0/4/9           120 samples, 1 s apart, with the values in turn
//	expect driving=3 throttle=1    the verdicts now
//	never driving=3                from here on, no sample may lead to this verdict
//	explain throttle/noise         the rule behind the throttle verdict
//
// A signal is one of signalWords, in its unit, or codes=P0120,P0300 (codes=none for an empty
// list), ignition=ON, or relearn (an operator has the throttle learned again). Values that repeat in
// turn are separated by "/".
//
// The verdicts of expect: driving is 1, 2, 3, unknown, stale or not_driving; throttle is 0, 1,
// unknown or stale; driving_time and throttle_time are the verdicts' times since the start, or
// none. With at=6m, the verdicts are those at that time since the start, in place of the last sample's.
// max_age=5m is the age of the oldest readings that are accepted.
func TestDrives_Stories(t *testing.T) {
	files, err := filepath.Glob("testdata/drives/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("the stories: got none, error %v; want some", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("the story: got %v, want no error", err)
			}
			d := drive{start: signal.At(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC))}
			expects := 0
			lines := bufio.NewScanner(strings.NewReader(string(text)))
			for n := 1; lines.Scan(); n++ {
				line, _, _ := strings.Cut(lines.Text(), "#")
				words := strings.Fields(line)
				if len(words) == 0 {
					continue
				}
				if words[0] == "expect" {
					expects++
				}
				if err := d.do(words); err != nil {
					t.Fatalf("%s:%d: %v", file, n, err)
				}
			}
			if expects == 0 {
				t.Errorf("%s: got no expectation, want some", file)
			}
		})
	}
}

type drive struct {
	start signal.UnixMilli
	last  time.Duration // of the last sample, since the start
	state vehicle.State
	never []string // forbidden verdicts, such as driving=3
}

func (d *drive) do(words []string) error {
	switch words[0] {
	case "expect":
		return d.expect(words[1:])
	case "explain":
		if got := d.state.ExplainThrottle().Rule; got != words[1] {
			return fmt.Errorf("the rule is %s, want %s", got, words[1])
		}
		return nil
	case "never":
		d.never = append(d.never, words[1:]...)
		return nil
	}
	step, relative := strings.CutPrefix(words[0], "+")
	at, err := time.ParseDuration(step)
	if err != nil {
		return err
	}
	words = words[1:]
	repeat := 1
	if len(words) > 0 && strings.HasPrefix(words[0], "x") {
		if repeat, err = strconv.Atoi(words[0][1:]); err != nil {
			return err
		}
		words = words[1:]
	}
	if len(words) == 0 || repeat > 1 && !relative {
		return fmt.Errorf("a sample needs a signal, and a repeated one a relative time")
	}
	for i := range repeat {
		when := at
		if relative {
			when += d.last
		}
		x := vehicle.Sample{Vehicle: "car", Time: d.start.Add(when)}
		for _, w := range words {
			if err := read(&x.Readings, w, i); err != nil {
				return err
			}
		}
		d.state, d.last = vehicle.Observe(d.state, x), when
		for _, n := range d.never {
			if d.expect([]string{n}) == nil {
				return fmt.Errorf("%s at %v", n, when)
			}
		}
	}
	return nil
}

var signalWords = map[string]signal.Signal{
	"speed": signal.Speed, "obd_speed": signal.OBDSpeed, "engine": signal.EngineSpeed, "load": signal.EngineLoad,
	"throttle": signal.ThrottlePosition, "throttle_b": signal.ThrottlePositionB,
	"relative": signal.RelativeThrottlePosition,
	"actuator": signal.ThrottleActuator, "pedal_d": signal.AcceleratorPositionD,
	"pedal_e": signal.AcceleratorPositionE,
	"mil":     signal.MILOn, "free_flow": signal.FreeFlowSpeed,
}

// read adds the reading that a word such as speed=0/4/9 gives to the i-th repetition.
func read(r *signal.Readings, word string, i int) error {
	name, list, _ := strings.Cut(word, "=")
	values := strings.Split(list, "/")
	value := values[i%len(values)]
	switch name {
	case "relearn":
		*r = vehicle.Relearn("car", 0).Readings
		return nil
	case "codes":
		codes, ok := signal.TroubleCodes(value)
		if !ok {
			return fmt.Errorf("%q has no trouble code", value)
		}
		return r.SetCodes(codes)
	case "ignition":
		return r.SetIgnition(value)
	}
	s, ok := signalWords[name]
	if !ok {
		return fmt.Errorf("no signal is called %q", name)
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return err
	}
	return r.Set(s, v)
}

func (d *drive) expect(words []string) error {
	now, maxAge := d.start.Add(d.last), time.Duration(0)
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		var err error
		driving, throttle := d.state.Driving(), d.state.Throttle()
		var got string
		switch name {
		case "at":
			var at time.Duration
			at, err = time.ParseDuration(value)
			now, got = d.start.Add(at), value
		case "max_age":
			maxAge, err = time.ParseDuration(value)
			got = value
		case "driving":
			if got = driving.At(now, maxAge).String(); got == "answered" {
				got = strconv.Itoa(int(driving.State))
			}
		case "throttle":
			if got = throttle.At(now, maxAge).String(); got == "answered" {
				got = strconv.Itoa(int(throttle.System))
			}
		case "driving_time":
			got, value, err = d.times(driving.Time, value)
		case "throttle_time":
			got, value, err = d.times(throttle.Time, value)
		default:
			err = fmt.Errorf("nothing is called %q", name)
		}
		if err != nil {
			return err
		}
		if got != value {
			return fmt.Errorf("%s is %s, want %s (mean %.1f km/h, %+v)", name, got, value, d.state.MeanSpeed,
				d.state.Traffic)
		}
	}
	return nil
}

func (d *drive) times(t signal.UnixMilli, want string) (got, wanted string, err error) {
	if got = "none"; t != 0 {
		got = t.Sub(d.start).String()
	}
	if want == "none" {
		return got, want, nil
	}
	w, err := time.ParseDuration(want)
	return got, w.String(), err
}
