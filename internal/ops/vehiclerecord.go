package ops

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"carstate/internal/inwords"
	"carstate/internal/vehicle"
)

// VehicleRecord is all that is known of a vehicle, and why it is judged as it
// is.
type VehicleRecord struct {
	VID           string          `json:"vid"`
	AskedAt       time.Time       `json:"asked_at"`
	MaxAgeSeconds float64         `json:"max_age_seconds"`
	Driving       VerdictRecord   `json:"driving"`
	Throttle      VerdictRecord   `json:"throttle"`
	Readings      []ReadingRecord `json:"readings"` // the newest of each signal
}

// VerdictRecord is one verdict and its reason.
type VerdictRecord struct {
	ListedVerdict
	Rule    string       `json:"rule"`
	Version int          `json:"version"`
	Text    string       `json:"text"`
	Facts   []FactRecord `json:"facts"`
}

// FactRecord is one thing that a rule looked at.
type FactRecord struct {
	Name      string     `json:"name"`
	Value     float64    `json:"value"`
	Unit      string     `json:"unit"`
	Threshold *float64   `json:"threshold"` // nil: it is compared with nothing
	Limit     string     `json:"limit"`     // the meaning of the threshold, such as "anomaly from"
	Time      *time.Time `json:"time"`
}

// LimitInWords is the threshold and what lies there; "": it is compared with nothing.
func (r FactRecord) LimitInWords() string {
	if r.Threshold == nil {
		return ""
	}
	return r.Limit + " " + inwords.Measure(*r.Threshold, r.Unit)
}

// Telling are the facts that a person wants to read: not the measures that have found nothing.
func (v VerdictRecord) Telling() (telling []FactRecord) {
	for _, f := range v.Facts {
		if f.Value != 0 || f.Limit != vehicle.AnomalyFrom {
			telling = append(telling, f)
		}
	}
	return telling
}

// Silent is how many facts are not telling.
func (v VerdictRecord) Silent() int { return len(v.Facts) - len(v.Telling()) }

// ReadingRecord is the newest reading of one signal.
type ReadingRecord struct {
	Signal string    `json:"signal"`
	Value  *float64  `json:"value"` // nil: a position, which is not shown
	Unit   string    `json:"unit"`
	Time   time.Time `json:"time"`
}

// InWords is the value with its unit.
func (r ReadingRecord) InWords() string {
	switch {
	case r.Value == nil:
		return "not shown"
	case r.Signal == vehicle.LowVoltageSystemState.String():
		return vehicle.Ignition(*r.Value).String()
	case r.Signal == vehicle.MILOn.String():
		return [2]string{"off", "on"}[min(1, int(*r.Value))]
	}
	return inwords.Measure(*r.Value, r.Unit)
}

// State reads what is stored of a vehicle.
func (p *Operations) State(ctx context.Context, id vehicle.ID) (s vehicle.State, ok bool, err error) {
	return p.cfg.State(ctx, id)
}

// Vehicle shows what is stored of a vehicle, and returns its state as well.
func (p *Operations) Vehicle(ctx context.Context, id vehicle.ID) (VehicleRecord, vehicle.State, error) {
	s, ok, err := p.cfg.State(ctx, id)
	switch {
	case err != nil:
		return VehicleRecord{}, s, fmt.Errorf("%w: %w", errStateUnread, err)
	case !ok:
		return VehicleRecord{}, s, ErrNotReported
	}
	now := p.cfg.Now()
	driving, throttle := p.verdicts(s.Driving(), s.Throttle(), vehicle.At(now))
	r := VehicleRecord{
		VID: string(id), AskedAt: now.UTC(), MaxAgeSeconds: p.cfg.MaxAge.Seconds(),
		Driving:  explained(driving, s.ExplainDriving()),
		Throttle: explained(throttle, s.ExplainThrottle()),
		Readings: []ReadingRecord{},
	}
	for i, reading := range s.Latest {
		if reading.Time != 0 {
			g := vehicle.Signal(i)
			shown := ReadingRecord{Signal: g.String(), Unit: g.Unit(), Time: reading.Time.Time()}
			if !g.IsPosition() {
				shown.Value = new(float64(reading.Value))
			}
			r.Readings = append(r.Readings, shown)
		}
	}
	return r, s, nil
}

// ErrNotReported is of a vehicle of which nothing is stored.
var ErrNotReported = Refuse(http.StatusNotFound, "no vehicle of this vid has reported")

// errStateUnread is of a state that cannot be read.
var errStateUnread = Refuse(http.StatusServiceUnavailable, "the vehicle's state cannot be read at present; the service's log says why")

func explained(l ListedVerdict, e vehicle.Explanation) VerdictRecord {
	v := VerdictRecord{ListedVerdict: l, Rule: e.Rule, Version: e.Version, Text: e.Text, Facts: []FactRecord{}}
	for _, f := range e.Facts {
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
			continue // JSON has no word for it
		}
		r := FactRecord{Name: f.Name, Value: f.Value, Unit: f.Unit, Limit: f.Limit, Time: timeOrNil(f.Time)}
		if !math.IsNaN(f.Threshold) && !math.IsInf(f.Threshold, 0) {
			r.Threshold = &f.Threshold
		}
		v.Facts = append(v.Facts, r)
	}
	return v
}

func timeOrNil(m vehicle.UnixMilli) *time.Time {
	if m == 0 {
		return nil
	}
	t := m.Time()
	return &t
}
