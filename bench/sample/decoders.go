package sample

import (
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bytedance/sonic"
	goccy "github.com/goccy/go-json"
	"github.com/valyala/fastjson"

	"carstate/bench/report"
	"carstate/internal/ingest"
	"carstate/internal/vehicle"
)

// The libraries read a line as anyone would who uses them: the three that bind to
// types into wire, fastjson into its own tree. Then the values become a
// vehicle.Sample, checked like ours. None of them refuses a name that appears
// twice but encoding/json/v2, none says which byte is wrong in our words, and
// fastjson takes numbers that are none: what they would need besides is not
// counted.

// wire is a sample as it travels.
type wire struct {
	VID     string         `json:"vid"`
	Time    string         `json:"time"`
	Signals map[string]any `json:"signals"`
}

func (w *wire) sample() (x vehicle.Sample, err error) {
	if x.Vehicle, err = vehicle.ParseID(w.VID); err != nil {
		return x, err
	}
	at, err := time.Parse(time.RFC3339Nano, w.Time)
	if err != nil {
		return x, err
	}
	x.Time = vehicle.At(at)
	for name, v := range w.Signals {
		s, ok := vehicle.SignalByName(name)
		if !ok {
			continue
		}
		f, ok := v.(float64)
		if !ok {
			return x, errors.New("a signal is no number")
		}
		if err := x.Set(s, f); err != nil {
			return x, err
		}
	}
	return x, nil
}

// bound reads a line with a library that fills in types.
func bound(unmarshal func([]byte, any) error) func([]byte) (vehicle.Sample, error) {
	return func(line []byte) (vehicle.Sample, error) {
		var w wire
		if err := unmarshal(line, &w); err != nil {
			return vehicle.Sample{}, err
		}
		return w.sample()
	}
}

// tree reads a line with fastjson.
func tree() func([]byte) (vehicle.Sample, error) {
	var p fastjson.Parser
	return func(line []byte) (x vehicle.Sample, err error) {
		v, err := p.ParseBytes(line)
		if err != nil {
			return x, err
		}
		if x.Vehicle, err = vehicle.ParseID(string(v.GetStringBytes("vid"))); err != nil {
			return x, err
		}
		at, err := time.Parse(time.RFC3339Nano, string(v.GetStringBytes("time")))
		if err != nil {
			return x, err
		}
		x.Time = vehicle.At(at)
		signals, err := v.Get("signals").Object()
		if err != nil {
			return x, err
		}
		signals.Visit(func(name []byte, v *fastjson.Value) {
			if s, ok := vehicle.SignalByName(name); ok {
				f, e := v.Float64()
				err = errors.Join(err, e, x.Set(s, f))
			}
		})
		return x, err
	}
}

// ours reads a line with the service's own decoder.
func ours() func([]byte) (vehicle.Sample, error) {
	d := ingest.NewDecoder()
	latest := vehicle.At(time.Now().Add(ingest.MaxAhead))
	return func(line []byte) (vehicle.Sample, error) { return d.Sample(line, "", latest) }
}

// decoders are compared on the same line, but that one of them must fall back.
var decoders = []struct {
	name   string
	remark string
	make   func() func([]byte) (vehicle.Sample, error)
	spell  func(string) string
}{
	{"carstate", "a usual line is read by our own code", ours, plain},
	{"carstate, unusual line", "an escape in a name: the general parser, jsontext, reads it token by token", ours,
		func(line string) string { return strings.Replace(line, `"vid"`, `"v\u0069d"`, 1) }},
	{"encoding/json/v2", "into a struct with a map", func() func([]byte) (vehicle.Sample, error) {
		return bound(func(b []byte, v any) error { return jsonv2.Unmarshal(b, v) })
	}, plain},
	{"goccy/go-json", "into a struct with a map", func() func([]byte) (vehicle.Sample, error) { return bound(goccy.Unmarshal) }, plain},
	{"bytedance/sonic", "into a struct with a map; on a Go that it does not know it is encoding/json", func() func([]byte) (vehicle.Sample, error) { return bound(sonic.Unmarshal) }, plain},
	{"valyala/fastjson", "into its own tree, used again", tree, plain},
}

func plain(line string) string { return line }

// runDecoders measures the CPU time of each decoder for one line, in rounds that
// take turns.
func runDecoders(o report.Options, r *report.Results) error {
	lines, rounds := 100_000, max(o.Rounds, 1)
	if o.Quick {
		lines = 5000
	}
	b := newBody(0, 1, 1)
	b.stamp(time.Now())
	line := strings.TrimSpace(string(b.text))
	took := make([][]float64, len(decoders))
	for range rounds {
		for i, d := range decoders {
			decode, text := d.make(), []byte(d.spell(line))
			start := cpuHere()
			for range lines {
				x, err := decode(text)
				if err != nil {
					return fmt.Errorf("%s: %w", d.name, err)
				}
				if v, ok := x.Value(vehicle.Speed); !ok || v == 0 {
					return fmt.Errorf("%s did not read the speed", d.name)
				}
			}
			took[i] = append(took[i], float64((cpuHere()-start).Nanoseconds())/float64(lines))
		}
	}
	for i, d := range decoders {
		f := summary(took[i])
		f.Subject, f.Name, f.Unit = d.name, "CPU to decode a sample of "+strconv.Itoa(len(line))+" bytes", "ns"
		f.Remark = d.remark
		r.Add(f)
	}
	return nil
}

// cpuHere is the user and system time of this process, garbage collection
// included.
func cpuHere() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
