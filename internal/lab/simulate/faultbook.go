package simulate

import (
	"math/rand/v2"
	"time"

	"example.org/carstate/internal/lab/faults"
	"example.org/carstate/internal/signal"
)

type faultBook struct {
	perHour float64
	random  *rand.Rand
	cars    []carFaults
	all     []*standingFault
}

type carFaults struct {
	healthy faults.Injector
	now     *standingFault // nil: the car is healthy
	mended  time.Duration  // when the last fault ended; 0: never
	last    time.Duration  // time of its latest sample
}

type standingFault struct {
	fault        faults.Fault
	injector     *faults.Injector
	begun, until time.Duration
	observable   time.Duration // when a reading first changed by more than healthy sensors err, or 0
	// queries after the fault was observable for a minute, and when one was first answered
	// "anomaly", or 0
	asked int
	found time.Duration
}

const (
	// An earlier fault would be learned as a property of the car (docs/verdicts.md).
	firstFault    = 2 * time.Minute
	shortestFault = 4 * time.Minute
	meanFault     = 10 * time.Minute
)

func newFaultBook(cars int, perHour float64, seed uint64) *faultBook {
	return &faultBook{perHour: perHour, random: rand.New(rand.NewPCG(seed, 3)), cars: make([]carFaults, cars)}
}

func (b *faultBook) apply(car int, at time.Duration, r *signal.Readings) {
	if !r.Has(signal.ThrottlePosition) {
		return // the car is parked
	}
	c := &b.cars[car]
	gone := at - c.last
	c.last = at
	if c.now != nil && at >= c.now.until {
		c.now.until, c.mended, c.now = at, at, nil
	}
	if c.now == nil {
		c.healthy.Watch(r)
		if at > firstFault && gone < time.Minute && b.random.Float64() < b.perHour*gone.Hours() {
			f := b.draw()
			lasts := shortestFault + time.Duration(b.random.ExpFloat64()*float64(meanFault-shortestFault))
			c.now = &standingFault{fault: f, injector: c.healthy.Begin(f), begun: at, until: at + lasts}
			b.all = append(b.all, c.now)
		}
		return
	}
	changed := c.now.injector.Apply(r)
	if c.now.observable == 0 && changed >= c.now.fault.Deviation() {
		c.now.observable = at
	}
}

var faultySensors = [...]signal.Signal{
	signal.ThrottlePosition, signal.ThrottlePositionB, signal.ThrottleActuator,
	signal.AcceleratorPositionD, signal.AcceleratorPositionE,
}

func (b *faultBook) draw() faults.Fault {
	pick := func(of ...float64) float64 { return of[b.random.IntN(len(of))] }
	f := faults.Fault{
		Kind: faults.Kind(b.random.IntN(faults.NumKinds)),
		On:   faultySensors[b.random.IntN(len(faultySensors))],
		Seed: b.random.Uint64(),
	}
	switch f.Kind {
	case faults.Offset:
		f.Size = pick(-30, -20, -10, 10, 20, 30)
	case faults.Gain:
		f.Size = pick(0.5, 0.7, 1.5, 2)
	case faults.Noise:
		f.Size = pick(10, 20, 30)
	case faults.OpenPlate:
		f.Size = pick(20, 60)
	case faults.LostCommand:
		f.On = signal.ThrottleActuator
	}
	return f
}
