package format

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/jsonscan"
	"example.org/carstate/internal/signal"
)

type value struct {
	raw   []byte
	plain bool // raw is the text, not JSON
}

func (v value) text() (text string, ok bool) {
	switch {
	case v.raw == nil:
		return "", false
	case v.plain:
		return strings.TrimSpace(string(v.raw)), true
	}
	switch jsontext.Value(v.raw).Kind() {
	case jsontext.KindString:
		b, err := jsontext.AppendUnquote(nil, v.raw)
		return strings.TrimSpace(string(b)), err == nil
	case jsontext.KindNumber, jsontext.KindTrue, jsontext.KindFalse:
		return string(v.raw), true
	}
	return "", false
}

func (v value) isNull() bool { return !v.plain && string(v.raw) == "null" }

// canonical gives equal numbers the same text, so that 0.0 is found under 0.
func canonical(text string) string {
	if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
		return strconv.FormatFloat(v+0, 'g', -1, 64)
	}
	return text
}

var units = map[string]map[string]float64{
	"km/h": {"km/h": 1, "kmh": 1, "kph": 1, "km|h": 1, "mph": 1.609344, "mi/h": 1.609344, "miles/h": 1.609344,
		"knots": 1.852, "kn": 1.852, "kt": 1.852, "m/s": 3.6, "meters/second": 3.6, "mps": 3.6, "ft/s": 1.09728},
	"percent": {"percent": 1, "%": 1, "ratio": 100},
	"rpm":     {"rpm": 1, "1/min": 1, "u/min": 1, "rad/s": 30 / math.Pi, "rad|s": 30 / math.Pi, "hz": 60},
	"degrees": {"degrees": 1, "degree": 1, "deg": 1, "°": 1, "rad": 180 / math.Pi},
	"m":       {"m": 1, "meters": 1, "metres": 1, "km": 1000, "ft": 0.3048},
}

func Factor(s signal.Signal, unit string) (float64, error) {
	if unit == "" {
		return 1, nil
	}
	known := units[s.Unit()]
	if f, ok := known[strings.ToLower(unit)]; ok {
		return f, nil
	}
	if known == nil {
		return 0, fmt.Errorf("%s has no unit", s)
	}
	return 0, fmt.Errorf("the unit of %s is not known: it can be %s", s,
		strings.Join(slices.Sorted(maps.Keys(known)), ", "))
}

var (
	ErrNotNumber = errors.New("is not a number")
	ErrNotCodes  = errors.New("has no trouble code")
	ErrNotBool   = errors.New("is neither true nor false")
)

func (s *mapped) set(r *signal.Readings, v value) error {
	if v.raw == nil {
		return nil
	}
	if v.isNull() {
		return signal.ErrNotAvailable
	}
	text, ok := v.text()
	if to, mapped := s.values[canonical(text)]; mapped && ok {
		if text = to; to == "none" {
			return nil
		}
	}
	switch s.Signal {
	case signal.DTCList:
		return setCodes(r, v, text)
	case signal.MILOn:
		switch strings.ToLower(text) {
		case "true", "1", "on":
			return r.Set(s.Signal, 1)
		case "false", "0", "off":
			return r.Set(s.Signal, 0)
		}
		return ErrNotBool
	case signal.LowVoltageSystemState:
		return r.SetIgnition(text)
	}
	if ok && text == "" {
		return nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return ErrNotNumber
	}
	return r.SetReported(s.Signal, x*s.factor)
}

func SetText(r *signal.Readings, s signal.Signal, values map[string]string, factor float64, text string) error {
	return (&mapped{Signal: s, factor: factor, values: values}).set(r, value{[]byte(text), true})
}

const (
	maxCodes = 255
	maxTexts = 8 * maxCodes
)

func setCodes(r *signal.Readings, v value, text string) error {
	codes, readable := signal.TroubleCodes(text)
	if text == "" && !v.plain {
		readable = string(v.raw) == "[]"
		p, n := jsonscan.Scanner{Rest: v.raw}, 0
		for text := range p.Texts {
			found, ok := signal.TroubleCodes(string(text))
			codes, readable = append(codes, found...), readable || ok
			if n++; n == maxTexts {
				break
			}
		}
	}
	if !readable {
		return ErrNotCodes
	}
	return r.SetCodes(slices.Clone(codes[:min(len(codes), maxCodes)]))
}

// timeUnits are in milliseconds, or 0 if times are not numbers.
var timeUnits = map[string]float64{
	"": 1, "rfc3339": 0, "arrival": 0, "time of day": 0, "s": 1e3, "ms": 1, "us": 1e-3, "ns": 1e-6,
}

func (f *Format) ParseTime(text string) (signal.UnixMilli, bool) {
	unit := f.Time.Unit
	layouts := []string{time.RFC3339, "2006-01-02T15:04:05Z0700"}
	switch {
	case f.Time.Layout != "":
		layouts = []string{f.Time.Layout}
	case unit == "time of day":
		t, err := time.Parse("15:04:05", text)
		return signal.UnixMilli(t.Sub(t.Truncate(24 * time.Hour)).Milliseconds()), err == nil
	case timeUnits[unit] != 0:
		x, err := strconv.ParseFloat(text, 64)
		if err == nil {
			x = math.Round(x * timeUnits[unit])
			return signal.UnixMilli(x), x >= 0 && x < 1e14
		}
		if unit != "" {
			return 0, false
		}
	}
	for _, l := range layouts {
		if t, err := time.Parse(l, text); err == nil && t.Year() >= 1970 && t.Year() < 5000 {
			return signal.At(t), true
		}
	}
	return 0, false
}
