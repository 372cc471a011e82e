package evaluate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/fcd"
	"example.org/carstate/internal/lab/score"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// FleetConfig can leave out readings (Every) and cars (Share), because real fleets report less than
// simulated ones. The choice depends only on names and times.
type FleetConfig struct {
	Fold     func(s *vehicle.State, x *vehicle.Sample, again bool) (changed bool)
	Every    time.Duration      // zero keeps all
	Share    float64            // above 0 and at most 1
	Progress func(readings int) // since the last call; may be nil
	// Judged, if set, receives the used samples, with the state in the answer, or 0.
	Judged func(x vehicle.Sample, said driving.State)
}

type FleetResult struct {
	Vehicles int             // cars that sent
	Readings int             // without those of the learned days
	All      score.Agreement // all labels
	Sure     score.Agreement
	// Stretches is set by the caller.
	Stretches int
}

// No learned reading must get a time before 1970.
var origin = signal.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))

const progressEvery = 4096

// Fleet compares labels with the answers at their times. First, so that the map knows the roads, it
// folds learn: days that end 24 hours apart, the oldest first. Only the map remembers a day: files
// may reuse names. It is an error if no label is about a car that sends.
func Fleet(ctx context.Context, c FleetConfig, fleet *fcd.Fleet, learn []*fcd.Fleet, labels []fcd.Label) (
	*FleetResult, error) {
	r := fleetRun{FleetConfig: c, cars: make(map[vehicle.ID]*car)}
	for i, day := range learn {
		r.begin(day)
		ago := time.Duration(len(learn)-i) * 24 * time.Hour
		for x, err := range day.Samples(ctx, origin.Add(fleet.Last-ago-day.Last)) {
			if err != nil {
				return nil, err
			}
			r.observe(&x)
		}
	}
	r.begin(fleet)
	r.result.Vehicles = len(r.cars)
	for x, err := range fleet.Samples(ctx, origin) {
		if err != nil {
			return nil, err
		}
		for len(labels) > 0 && origin.Add(labels[0].At) < x.Time {
			r.ask(&labels[0])
			labels = labels[1:]
		}
		if kept := r.observe(&x); kept != nil {
			r.result.Readings++
			if c.Judged != nil {
				c.Judged(x, answer(&kept.state, x.Time))
			}
		}
	}
	for i := range labels {
		r.ask(&labels[i])
	}
	if r.result.All.Rows == 0 {
		return nil, errors.New("no label is of a car that sends: take the labels of this fleet, or a larger --share")
	}
	return &r.result, nil
}

type fleetRun struct {
	FleetConfig
	cars   map[vehicle.ID]*car // those that send on this day
	read   int
	result FleetResult
}

type car struct {
	state vehicle.State
	next  signal.UnixMilli // readings before it are left out
}

func (r *fleetRun) begin(day *fcd.Fleet) {
	clear(r.cars)
	for _, id := range day.Vehicles {
		if fraction(id, 0) < r.Share {
			r.cars[id] = new(car)
		}
	}
}

func (r *fleetRun) observe(x *vehicle.Sample) *car {
	if r.read++; r.read%progressEvery == 0 && r.Progress != nil {
		r.Progress(progressEvery)
	}
	k := r.cars[x.Vehicle]
	if k == nil || x.Time < k.next {
		return nil
	}
	wait := r.Every
	if k.next == 0 {
		// Otherwise cars that begin together would always send together.
		wait += time.Duration(fraction(x.Vehicle, 1) * float64(r.Every))
	}
	k.next = x.Time.Add(wait)
	r.Fold(&k.state, x, false)
	return k
}

func (r *fleetRun) ask(l *fcd.Label) {
	k := r.cars[l.Vehicle]
	if k == nil {
		return
	}
	said := answer(&k.state, origin.Add(l.At))
	r.result.All.Add(l.Truth, said)
	if l.Sure {
		r.result.Sure.Add(l.Truth, said)
	}
}

// fraction, a hash, is below 1; those for which = 0 to 3 are independent.
func fraction(id vehicle.ID, which int) float64 {
	sum := sha256.Sum256([]byte(id))
	const bits = 53 // precision of a float64
	return float64(binary.BigEndian.Uint64(sum[8*which:])>>(64-bits)) / (1 << bits)
}

// FleetReport is the output of `evaluate --fleet --json`.
type FleetReport struct {
	Vehicles  int `json:"vehicles"`
	Readings  int `json:"readings"`
	Stretches int `json:"stretches"` // known at the end
	// By the true state and the verdict, 0 for none. Sure is without labels close to a border.
	Confusion [3][4]int `json:"confusion"`
	Sure      [3][4]int `json:"sure"`
	MacroF1   float64   `json:"macro_f1"`
	F1        stateF1   `json:"f1"`
}

type stateF1 struct {
	Normal float64 `json:"normal"`
	Slow   float64 `json:"slow"`
	Jam    float64 `json:"jam"`
}

func (r *FleetResult) Report() FleetReport {
	return FleetReport{
		Vehicles: r.Vehicles, Readings: r.Readings, Stretches: r.Stretches,
		Confusion: r.All.Confusion, Sure: r.Sure.Confusion, MacroF1: r.All.MacroF1,
		F1: stateF1{r.All.Of(driving.Normal).F1(), r.All.Of(driving.Slow).F1(), r.All.Of(driving.Jam).F1()},
	}
}

func (r *FleetResult) WriteTables(w io.Writer) error {
	t := score.NewTables(w)
	t.Line("vehicles\treadings\tstretches")
	t.Line("%d\t%d\t%d", r.Vehicles, r.Readings, r.Stretches)
	t.Confusion(&r.All)
	if r.Sure.Rows > 0 {
		t.Line("\nOf these, the labels that are sure:")
		t.Confusion(&r.Sure)
	}
	return t.End()
}
