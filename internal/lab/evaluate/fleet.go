package evaluate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"example.org/carstate/internal/lab/fcd"
	"example.org/carstate/internal/lab/score"
	"example.org/carstate/internal/vehicle"
)

// FleetConfig says how to run the rules over a recorded fleet. Observe must be set. A real fleet
// reports less than a simulated one, so Every and Share can leave out some readings and some cars.
// The choice depends only on the vehicles' names and the times of the readings, so two runs use the
// same readings.
type FleetConfig struct {
	// Observe folds one sample into the state of its vehicle.
	Observe func(vehicle.State, vehicle.Sample) vehicle.State
	// Every is the least time between two readings of a car; readings between them are left
	// out. Zero keeps all readings.
	Every time.Duration
	// Share is the fraction of the cars whose readings are used, above 0 and at most 1. The
	// other cars send nothing.
	Share float64
	// Progress is called from time to time with the number of readings since the last call. If
	// nil, it is not called.
	Progress func(readings int)
	// Judged is called for each sample of the fleet that is used. said is the driving state in the
	// service's answer about the sample's vehicle after this sample; it is 0 if there is no answer.
	// If nil, Judged is not called.
	Judged func(x vehicle.Sample, said vehicle.DrivingState)
}

// FleetResult says how the service's answers about a fleet would agree with the labels.
type FleetResult struct {
	Vehicles int             // number of vehicles that sent
	Readings int             // number of readings that they sent, without those of the learned days
	All      score.Agreement // over all labels of cars that sent
	Sure     score.Agreement // over the labels that are sure
	// Stretches is the number of stretches of road about which something is known at the end. The
	// caller sets it.
	Stretches int
}

// origin is the time that replaces time 0 of a fleet file. Only differences of times matter. So
// origin may be any date, as long as no reading gets a time before 1970.
var origin = vehicle.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))

// progressEvery is the number of readings between two calls of Progress.
const progressEvery = 4096

// Fleet compares the answers of the service with labels. A label has the true driving state of a
// car at a time. Fleet folds the readings of fleet in their order. At the time of each label, it
// takes the answer about the label's car. The labels must be ordered by time. So that the map knows
// the roads, Fleet first folds learn, one file for each of the days before, the oldest first: the
// last reading of a file is 24 hours before that of the next. Only the map remembers a day. A name
// that appears again is another car, because files may reuse names, and a file of more than 24
// hours ends after the next one begins. Fleet returns an error if a file cannot be read, or if no
// label is about a car that sends, for example because of FleetConfig.Share.
func Fleet(ctx context.Context, c FleetConfig, fleet *fcd.Fleet, learn []*fcd.Fleet, labels []fcd.Label) (
	*FleetResult, error) {
	r := fleetRun{FleetConfig: c, cars: make(map[vehicle.ID]*car)}
	for i, day := range learn {
		ago := time.Duration(len(learn)-i) * 24 * time.Hour
		for x, err := range day.Samples(ctx, origin.Add(fleet.Last-ago-day.Last)) {
			if err != nil {
				return nil, err
			}
			r.observe(&x)
		}
		clear(r.cars)
	}
	for _, id := range fleet.Vehicles {
		if sends(id, c.Share) {
			r.car(id).counts = true
			r.result.Vehicles++
		}
	}
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
				c.Judged(x, r.answer(kept, x.Time))
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
	cars   map[vehicle.ID]*car
	read   int
	result FleetResult
}

type car struct {
	state  vehicle.State
	next   vehicle.UnixMilli // time of the earliest reading that is kept
	counts bool              // the vehicle belongs to the fleet that has labels
}

// car returns the data that are kept about a vehicle. If the vehicle is new, it adds empty data.
func (r *fleetRun) car(id vehicle.ID) *car {
	k := r.cars[id]
	if k == nil {
		k = new(car)
		r.cars[id] = k
	}
	return k
}

// observe folds a sample and returns the data that are kept about its vehicle. If the sample is
// left out (see FleetConfig), observe returns nil.
func (r *fleetRun) observe(x *vehicle.Sample) *car {
	if r.read++; r.read%progressEvery == 0 && r.Progress != nil {
		r.Progress(progressEvery)
	}
	k := r.cars[x.Vehicle]
	if k == nil {
		if !sends(x.Vehicle, r.Share) {
			return nil
		}
		k = r.car(x.Vehicle)
	}
	if x.Time < k.next {
		return nil
	}
	wait := r.Every
	if k.next == 0 {
		// Without this additional delay, from 0 to less than Every, cars that begin at the same time
		// would send all their readings at the same times.
		wait += time.Duration(fraction(x.Vehicle, 1) * float64(r.Every))
	}
	k.next = x.Time.Add(wait)
	k.state = r.Observe(k.state, *x)
	return k
}

// ask compares a label with the driving state that the service would answer about the label's car
// at the label's time, and adds the comparison to the result. If the fleet with the labels does not
// have the car, or the car's readings are not used, ask does nothing.
func (r *fleetRun) ask(l *fcd.Label) {
	k := r.cars[l.Vehicle]
	if k == nil || !k.counts {
		return
	}
	said := r.answer(k, origin.Add(l.At))
	r.result.All.Add(l.Truth, said)
	if l.Sure {
		r.result.Sure.Add(l.Truth, said)
	}
}

// answer returns the driving state that the service would answer about k at now, 0 for no answer.
func (r *fleetRun) answer(k *car, now vehicle.UnixMilli) vehicle.DrivingState {
	v := k.state.Driving()
	if v.At(now, maxAge) != vehicle.Answered {
		return 0
	}
	return v.State
}

// sends reports whether the readings of a car are used (see FleetConfig.Share).
func sends(id vehicle.ID, share float64) bool { return fraction(id, 0) < share }

// fraction returns a number from 0 to less than 1 that depends only on the vehicle's name and on
// which. The numbers for which = 0, 1, 2 and 3 are independent of each other.
func fraction(id vehicle.ID, which int) float64 {
	sum := sha256.Sum256([]byte(id))
	const bits = 53 // precision of a float64
	return float64(binary.BigEndian.Uint64(sum[8*which:])>>(64-bits)) / (1 << bits)
}

// FleetReport is the output of `evaluate --fleet --json`.
type FleetReport struct {
	Vehicles  int `json:"vehicles"`
	Readings  int `json:"readings"`
	Stretches int `json:"stretches"` // stretches of road that are known at the end
	// Confusion counts the labels of the cars that sent. The first index is the true state (normal,
	// slow, jam), the second the verdict (none, normal, slow, jam). Sure counts only those labels
	// that are not close to the border to another state.
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

// Report returns the result in the form in which it is printed as JSON.
func (r *FleetResult) Report() FleetReport {
	return FleetReport{
		Vehicles: r.Vehicles, Readings: r.Readings, Stretches: r.Stretches,
		Confusion: r.All.Confusion, Sure: r.Sure.Confusion, MacroF1: r.All.MacroF1,
		F1: stateF1{r.All.Of(vehicle.NormalDriving).F1(), r.All.Of(vehicle.SlowDriving).F1(),
			r.All.Of(vehicle.TrafficJam).F1()},
	}
}

// WriteTables prints the result as tables. It returns the first error of w.
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
