package faults

import (
	"math"

	"example.org/carstate/internal/signal"
)

type Kind uint8

// The last three are faults of the plate, so they change both its sensors.
const (
	Offset       Kind = iota // adds Size percent
	Gain                     // multiplies by Size
	Stuck                    // repeats the last healthy value
	ShortGround              // reads 0 %
	ShortBattery             // reads 100 %
	Noise                    // adds up to ± Size percent to each reading
	LostCommand              // reads 0 %, because it does not arrive
	StuckPlate               // repeats the last healthy value of both sensors
	OpenPlate                // is Size percent above closed, at most open
	LimpHome                 // falls to where its springs hold it
	NumKinds     = iota
)

var kindNames = [NumKinds]string{"offset", "gain", "stuck", "short to ground", "short to battery", "noise",
	"lost command", "stuck plate", "open plate", "limp home"}

func (k Kind) String() string { return kindNames[k] }

// Kind says what Size means; Seed is for Noise.
type Fault struct {
	Kind Kind
	// On is ignored for a fault of the plate.
	On   signal.Signal
	Size float64
	Seed uint64
}

// Deviation is how far healthy sensors of this kind were off for some seconds in recorded drives. A
// smaller change is not observable.
func (f Fault) Deviation() float64 {
	switch {
	case f.Kind >= StuckPlate, f.On == signal.ThrottlePosition, f.On == signal.ThrottlePositionB:
		return 8
	case f.On == signal.ThrottleActuator:
		return 3
	}
	return 5
}

// springs hold the plate above closed, in percent, for the car to creep home.
const springs = 6

var plateSensors = [...]signal.Signal{signal.ThrottlePosition, signal.ThrottlePositionB}

// Injector remembers the samples before the fault, so it must receive all in order.
type Injector struct {
	fault  Fault
	last   [signal.Num]float64 // latest
	closed [signal.Num]float64 // lowest
	random uint64
}

func (j *Injector) Watch(r *signal.Readings) {
	for g := range signal.Signal(signal.Num) {
		if v, ok := r.Value(g); ok {
			if j.closed[g] == 0 || float64(v) < j.closed[g] {
				j.closed[g] = float64(v)
			}
			j.last[g] = float64(v)
		}
	}
}

// Begin returns a copy that applies f to later samples.
func (j Injector) Begin(f Fault) *Injector {
	j.fault, j.random = f, f.Seed*2862933555777941757+3037000493
	return &j
}

// Apply changes r, and returns by how many percent at most.
func (j *Injector) Apply(r *signal.Readings) (changed float64) {
	concerned := []signal.Signal{j.fault.On}
	if j.fault.Kind >= StuckPlate {
		concerned = plateSensors[:]
	}
	for _, g := range concerned {
		v, ok := r.Value(g)
		if !ok {
			continue
		}
		healthy := float64(v)
		faulty := quantised(j.value(g, healthy))
		changed = max(changed, math.Abs(faulty-healthy))
		if err := r.Set(g, faulty); err != nil {
			panic(err) // cannot happen: every sensor with a fault reads 0 to 100 %
		}
	}
	return changed
}

func (j *Injector) value(g signal.Signal, healthy float64) float64 {
	switch j.fault.Kind {
	case Offset:
		return healthy + j.fault.Size
	case Gain:
		return healthy * j.fault.Size
	case Stuck, StuckPlate:
		return j.last[g]
	case ShortBattery:
		return 100
	case Noise:
		j.random = j.random*6364136223846793005 + 1442695040888963407
		return healthy + j.fault.Size*(float64(j.random>>11)/(1<<52)-1)
	case OpenPlate:
		return max(healthy, min(j.closed[g]+j.fault.Size, 99))
	case LimpHome:
		return j.closed[g] + springs
	}
	return 0 // ShortGround, LostCommand
}

func quantised(percent float64) float64 {
	return math.Round(min(max(percent, 0), 100)*255/100) * 100 / 255
}
