package fleeteval

import (
	"context"
	"errors"
	"time"

	"carstate/internal/lab/fcd"
	"carstate/internal/lab/score"
	"carstate/internal/vehicle"
)

// Config says how to run the rules. Observe must be set.
type Config struct {
	// Observe folds one sample into the state of its vehicle.
	Observe func(vehicle.State, vehicle.Sample) vehicle.State
	// Every is the time between two readings of a car, at least. Zero keeps all.
	Every time.Duration
	// Share of the cars that send, above 0 and at most 1.
	Share float64
	// MaxAge is how old a verdict may be to answer.
	MaxAge time.Duration
	// Progress, if not nil, is told now and then how many more readings were read.
	Progress func(readings int)
	// Judged, if not nil, is told each sample of the fleet that was kept and the
	// driving state that its vehicle is in after it, 0 for none.
	Judged func(x vehicle.Sample, said vehicle.DrivingState)
}

// Result is how the answers agree with the labels.
type Result struct {
	Vehicles int             // that sent
	Readings int             // that they sent, those of the learned day not among them
	All      score.Agreement // over all labels of cars that sent
	Sure     score.Agreement // over those that are sure
}

// origin is the time that a fleet file's times count from. Any would do that is later
// than the longest file is long: only differences count.
var origin = vehicle.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))

// dayBefore is how long before the fleet's last reading that of the learned day is.
const dayBefore = 24 * time.Hour

// told is how many readings there are between two calls of Progress.
const told = 4096

// Run folds the fleet's readings in their order and asks at the time of each label how
// its car drives. The labels are ordered by time. A fleet to learn from, unless nil,
// is folded first, as the day before. It is an error if no label is of a car that sends.
func Run(ctx context.Context, c Config, fleet, learn *fcd.Fleet, labels []fcd.Label) (Result, error) {
	r := run{Config: c, cars: make(map[vehicle.ID]*car)}
	if learn != nil {
		base := origin.Add(fleet.Last - dayBefore - learn.Last)
		for x, err := range learn.Samples(ctx, base) {
			if err != nil {
				return Result{}, err
			}
			r.observe(&x)
		}
	}
	for _, id := range fleet.Vehicles {
		if sends(id, c.Share) {
			r.car(id).counts = true
			r.result.Vehicles++
		}
	}
	for x, err := range fleet.Samples(ctx, origin) {
		if err != nil {
			return Result{}, err
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
		return Result{}, errors.New("no label is of a car that sends: take the labels of this fleet, or a larger --share")
	}
	return r.result, nil
}

// run is a fleet on its way through the rules.
type run struct {
	Config
	cars   map[vehicle.ID]*car
	read   int
	result Result
}

// car is one vehicle.
type car struct {
	state  vehicle.State
	next   vehicle.UnixMilli // the earliest reading that is kept
	counts bool              // it is of the fleet that has labels
}

// car returns a vehicle that sends.
func (r *run) car(id vehicle.ID) *car {
	k := r.cars[id]
	if k == nil {
		k = new(car)
		r.cars[id] = k
	}
	return k
}

// observe folds a sample and returns its vehicle; nil if the sample was not sent.
func (r *run) observe(x *vehicle.Sample) *car {
	if r.read++; r.read%told == 0 && r.Progress != nil {
		r.Progress(told)
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
		wait += phase(x.Vehicle, r.Every)
	}
	k.next = x.Time.Add(wait)
	k.state = r.Observe(k.state, *x)
	return k
}

// ask counts a label.
func (r *run) ask(l *fcd.Label) {
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

// answer is what the service would say at a time, 0 for no answer.
func (r *run) answer(k *car, now vehicle.UnixMilli) vehicle.DrivingState {
	v := k.state.Driving()
	if v.At(now, r.MaxAge) != vehicle.Answered {
		return 0
	}
	return v.State
}
