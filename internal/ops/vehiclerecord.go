package ops

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

type VehicleRecord struct {
	VID           string          `json:"vid"`
	AskedAt       time.Time       `json:"asked_at"`
	MaxAgeSeconds float64         `json:"max_age_seconds"`
	Driving       VerdictRecord   `json:"driving"`
	Throttle      VerdictRecord   `json:"throttle"`
	Readings      []ReadingRecord `json:"readings"` // newest of each signal
}

type VerdictRecord struct {
	ListedVerdict
	Rule    string       `json:"rule"`
	Version int          `json:"version"`
	Text    string       `json:"text"`
	Facts   []FactRecord `json:"facts"`
}

type FactRecord struct {
	Name      string     `json:"name"`
	Value     float64    `json:"value"`
	Unit      string     `json:"unit"`
	Threshold *float64   `json:"threshold"` // null: Value is not compared
	Limit     string     `json:"limit"`     // such as "anomaly from"
	Time      *time.Time `json:"time"`
}

func (r FactRecord) InWords() string { return valueInWords(r.Name, r.Value, r.Unit) }

func (r FactRecord) LimitInWords() string {
	if r.Threshold == nil {
		return ""
	}
	return r.Limit + " " + inwords.Measure(*r.Threshold, r.Unit)
}

// Telling leaves out of Facts the evidence of the rules, and measures of an anomaly that are zero.
func (v VerdictRecord) Telling() (telling []FactRecord) {
	for _, f := range v.Facts {
		if (f.Value != 0 || f.Limit != throttle.AnomalyFrom) && !strings.HasPrefix(f.Name, throttle.Evidence) {
			telling = append(telling, f)
		}
	}
	return telling
}

func (v VerdictRecord) Silent() int { return len(v.Facts) - len(v.Telling()) }

type ReadingRecord struct {
	Signal string    `json:"signal"`
	Value  *float64  `json:"value"` // null: a position, which is not shown
	Unit   string    `json:"unit"`
	Time   time.Time `json:"time"`
}

func (r ReadingRecord) InWords() string {
	if r.Value == nil {
		return "not shown"
	}
	return valueInWords(r.Signal, *r.Value, r.Unit)
}

func valueInWords(name string, value float64, unit string) string {
	switch name {
	case signal.LowVoltageSystemState.String():
		return signal.Ignition(value).String()
	case signal.MILOn.String():
		return [2]string{"off", "on"}[min(1, int(value))]
	}
	return inwords.Measure(value, unit)
}

// State refuses with 503 if the state cannot be read.
func (p *Operations) State(ctx context.Context, id vehicle.ID) (s vehicle.State, ok bool, err error) {
	if s, ok, err = p.cfg.State(ctx, id); err != nil {
		err = fmt.Errorf("%w: %w", Refusalf(http.StatusServiceUnavailable,
			"the vehicle's state cannot be read at present; the service's log says why"), err)
	}
	return s, ok, err
}

// Vehicle refuses as State does, and with 404 if there is no state.
func (p *Operations) Vehicle(ctx context.Context, id vehicle.ID) (VehicleRecord, vehicle.State, error) {
	s, ok, err := p.State(ctx, id)
	switch {
	case err != nil:
		return VehicleRecord{}, s, err
	case !ok:
		if t, forgotten := p.Forgotten(id); forgotten {
			return VehicleRecord{}, s, Refusalf(http.StatusNotFound, "this vehicle was forgotten at %s: its data are deleted "+
				"and its telemetry is refused; once it is erased, `carstate forget VID --allow` accepts its telemetry again",
				t.Forgotten.UTC().Format("2006-01-02 15:04:05Z"))
		}
		return VehicleRecord{}, s, Refusalf(http.StatusNotFound, "no vehicle with this vid has reported")
	}
	now := p.cfg.Now()
	driving, throttle := p.verdicts(s.Driving(), s.Throttle(), signal.At(now))
	r := VehicleRecord{
		VID: string(id), AskedAt: now.UTC(), MaxAgeSeconds: p.cfg.MaxAge.Seconds(),
		Driving:  explained(driving, s.ExplainDriving()),
		Throttle: explained(throttle, s.ExplainThrottle()),
		Readings: []ReadingRecord{},
	}
	for i, reading := range s.Latest {
		if reading.Time != 0 {
			g := signal.Signal(i)
			shown := ReadingRecord{Signal: g.String(), Unit: g.Unit(), Time: reading.Time.Time()}
			if !g.IsPosition() {
				shown.Value = new(float64(reading.Value))
			}
			r.Readings = append(r.Readings, shown)
		}
	}
	return r, s, nil
}

func explained(l ListedVerdict, e signal.Explanation) VerdictRecord {
	v := VerdictRecord{ListedVerdict: l, Rule: e.Rule, Version: e.Version, Text: e.Text, Facts: []FactRecord{}}
	for _, f := range e.Facts {
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
			continue // JSON has no such number
		}
		r := FactRecord{Name: f.Name, Value: f.Value, Unit: f.Unit, Limit: f.Limit, Time: timeOrNil(f.Time)}
		if !math.IsNaN(f.Threshold) && !math.IsInf(f.Threshold, 0) {
			r.Threshold = &f.Threshold
		}
		v.Facts = append(v.Facts, r)
	}
	return v
}

func timeOrNil(m signal.UnixMilli) *time.Time {
	if m == 0 {
		return nil
	}
	return new(m.Time())
}
