package fleet

import (
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// The states of a vehicle, in the words of metrics and events.
var (
	DrivingStates  = []string{"normal", "slow", "jam", "not_driving", "stale", "unknown"}
	ThrottleStates = []string{"normal", "anomaly", "stale", "unknown"}
)

func drivingState(o vehicle.Outcome, s driving.State) string {
	if o != vehicle.Answered {
		return o.String()
	}
	return DrivingStates[max(s, driving.Normal)-1]
}

func throttleState(o vehicle.Outcome, s throttle.System) string {
	if o != vehicle.Answered {
		return o.String()
	}
	return s.String()
}

func (a Answer) States(now signal.UnixMilli, maxAge time.Duration) (driving, throttle string) {
	return drivingState(a.Driving.At(now, maxAge), a.Driving.State),
		throttleState(a.Throttle.At(now, maxAge), a.Throttle.System)
}

type Counts struct {
	Vehicles          int
	Driving, Throttle map[string]int // by all words of DrivingStates and ThrottleStates
	Ages              []int
}

// Count needs ages in ascending order. Ages[i] counts the vehicles whose newest verdict is at most
// ages[i] old and older than ages[i-1]; the last element counts the older ones. The writers of one
// shard at a time wait for Count.
func (t *Table) Count(now signal.UnixMilli, maxAge time.Duration, ages []time.Duration) Counts {
	var drives [4][4]int // by outcome and state
	var throttles [vehicle.NotDriving][2]int
	c := Counts{Driving: make(map[string]int), Throttle: make(map[string]int), Ages: make([]int, len(ages)+1)}
	since := make([]signal.UnixMilli, len(ages))
	for i, age := range ages {
		since[i] = now.Add(-age)
	}
	t.eachSlot(func(e *slot) {
		a := value{e[2], e[3]}.unpack()
		drives[a.Driving.At(now, maxAge)][a.Driving.State]++
		throttles[a.Throttle.At(now, maxAge)][a.Throttle.System]++
		newest, class := max(a.Driving.Time, a.Throttle.Time), 0
		for _, s := range since {
			if newest < s {
				class++
			}
		}
		c.Ages[class]++
		c.Vehicles++
	})
	for o, states := range drives {
		for state, n := range states {
			c.Driving[drivingState(vehicle.Outcome(o), driving.State(state))] += n
		}
	}
	for o, systems := range throttles {
		for system, n := range systems {
			c.Throttle[throttleState(vehicle.Outcome(o), throttle.System(system))] += n
		}
	}
	return c
}

func (t *Table) eachSlot(do func(*slot)) {
	for i := range t.shards {
		t.shards[i].each(do)
	}
}

// ReadBetween returns the vehicles with a verdict after from and up to to, whose vid is stored.
func (t *Table) ReadBetween(from, to signal.UnixMilli) []Listed {
	var found []Listed
	within := func(at int64) bool { return int64(from) < at && at <= int64(to) }
	t.eachSlot(func(e *slot) {
		if within(int64(e[2])>>stateBits) || within(int64(e[3])) {
			found = append(found, Listed{Answer: value{e[2], e[3]}.unpack(), Place: Place{Hash: [2]uint64{e[0], e[1]}}})
		}
	})
	return t.named(found)
}

func (t *Table) named(list []Listed) []Listed {
	for i := range list {
		list[i].ID = t.nameOf(key{list[i].Place.Hash[0], list[i].Place.Hash[1]})
	}
	return slices.DeleteFunc(list, func(l Listed) bool { return l.ID == "" })
}
