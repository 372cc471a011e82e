// Package report collects, stores and prints what the parts of the bench measured.
package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

type Figure struct {
	Part    string  `json:"part"`    // such as "query"
	Subject string  `json:"subject"` // the system: "carstate", "nginx return"
	Name    string  `json:"name"`
	Value   float64 `json:"value"`         // the median of the rounds
	Low     float64 `json:"low,omitempty"` // of the rounds; 0, like High, after one
	High    float64 `json:"high,omitempty"`
	Unit    string  `json:"unit"`
	Aim     string  `json:"aim,omitempty"` // as shown to people: "≤ 64 B"
	Met     *bool   `json:"met,omitempty"` // nil without an aim
	Remark  string  `json:"remark,omitempty"`
}

type Part struct {
	Name   string
	Quick  bool
	Rounds int    // interleaved; the result is the median
	Dir    string // on the disk to be measured
	Binary string
	Logf   func(format string, args ...any)

	Figures []Figure
}

func (p *Part) Add(subject, name, unit, remark string, rounds ...float64) float64 {
	return p.add("", nil, subject, name, unit, remark, rounds)
}

// AtMost has an aim if most is not 0, and AtLeast in the same way.
func (p *Part) AtMost(most float64, subject, name, unit, remark string, rounds ...float64) float64 {
	if most == 0 {
		return p.Add(subject, name, unit, remark, rounds...)
	}
	return p.add(fmt.Sprintf("≤ %g", most), func(v float64) bool { return v <= most }, subject, name, unit, remark, rounds)
}

func (p *Part) AtLeast(least float64, subject, name, unit, remark string, rounds ...float64) float64 {
	if least == 0 {
		return p.Add(subject, name, unit, remark, rounds...)
	}
	return p.add("≥ "+number(least), func(v float64) bool { return v >= least }, subject, name, unit, remark, rounds)
}

func (p *Part) add(aim string, met func(float64) bool, subject, name, unit, remark string, rounds []float64) float64 {
	f := Figure{Part: p.Name, Subject: subject, Name: name, Unit: unit, Remark: remark, Value: Median(rounds)}
	if met != nil {
		f.Aim, f.Met = strings.TrimSpace(aim+" "+unit), new(met(f.Value))
	}
	if len(rounds) > 1 {
		f.Low, f.High = slices.Min(rounds), slices.Max(rounds)
	}
	if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
		f.Value = 0 // a ratio with denominator 0
	}
	p.Logf("%s: %s: %s", f.Subject, f.Name, f.Text())
	p.Figures = append(p.Figures, f)
	return f.Value
}

type Rounds map[string][]float64

func (r Rounds) Add(name string, v float64) { r[name] = append(r[name], v) }

func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func Quantile[T cmp.Ordered](values []T, q float64) (at T) {
	if len(values) == 0 {
		return at
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

// Text has the range of the rounds and the unit.
func (f *Figure) Text() string {
	if f.Low == 0 && f.High == 0 {
		return strings.TrimSpace(number(f.Value) + " " + f.Unit)
	}
	return strings.TrimSpace(fmt.Sprintf("%s (%s–%s) %s", number(f.Value), number(f.Low), number(f.High), f.Unit))
}

func (f *Figure) Verdict() string {
	if f.Met == nil {
		return ""
	}
	return map[bool]string{true: "yes", false: "no"}[*f.Met]
}

// Three significant digits, or more before the point.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 1000:
		s := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func Count(n int) string {
	v := float64(n)
	for _, prefix := range []string{"", " k"} {
		if v < 1000 {
			return number(v) + prefix
		}
		v /= 1000
	}
	return number(v) + " M"
}

// Machine is one line, with the time in which the disk of dir syncs 4 KiB.
func Machine(dir string) (string, error) {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	kernel, _, _ := strings.Cut(string(release), "-") // of a distribution or a host
	syncs, err := Fsyncs(dir, 101)
	if err != nil {
		return "", fmt.Errorf("cannot measure the disk: %w", err)
	}
	return fmt.Sprintf("%s, %d cores, Linux %s, %s, fsync %s µs", model, runtime.NumCPU(),
		strings.TrimSpace(kernel), runtime.Version(), number(1e3*Median(syncs))), nil
}

// Fsyncs times synced writes of 4 KiB, in milliseconds.
func Fsyncs(dir string, times int) (took []float64, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4<<10)
	for range times {
		begin := time.Now()
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin).Seconds()*1e3)
	}
	return took, nil
}

// DirSize leaves out files that vanish during the walk.
func DirSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return size, err
}
