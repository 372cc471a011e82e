package fleet

import (
	"slices"
	"time"

	"example.org/carstate/internal/vehicle"
)

// The states of a vehicle, in the words of metrics and events: what a query gets, or why it gets
// nothing.
var (
	DrivingStates  = []string{"normal", "slow", "jam", "not_driving", "stale", "unknown"}
	ThrottleStates = []string{"normal", "anomaly", "stale", "unknown"}
)

func drivingState(o vehicle.Outcome, s vehicle.DrivingState) string {
	if o != vehicle.Answered {
		return o.String()
	}
	return DrivingStates[max(s, vehicle.NormalDriving)-1]
}

func throttleState(o vehicle.Outcome, s vehicle.ThrottleSystem) string {
	if o != vehicle.Answered {
		return o.String()
	}
	return s.String()
}

// States returns the driving state and the throttle state of a vehicle at the time now. A verdict
// whose reading is older than maxAge is stale.
func (a Answer) States(now vehicle.UnixMilli, maxAge time.Duration) (driving, throttle string) {
	return drivingState(a.Driving.At(now, maxAge), a.Driving.State),
		throttleState(a.Throttle.At(now, maxAge), a.Throttle.System)
}

// Counts holds the numbers of vehicles by their states and by their age.
type Counts struct {
	Driving, Throttle map[string]int // by the words of DrivingStates and ThrottleStates
	Ages              []int
}

// Count counts the vehicles at the time now. Ages of the result has the vehicles whose newest
// verdict is at most as old as the first of the ascending ages, as the second and not the first, and
// so on; its last element has the others. Readers of the table do not wait for Count; the writers
// of one shard at a time do.
func (t *Table) Count(now vehicle.UnixMilli, maxAge time.Duration, ages []time.Duration) Counts {
	by, n := new(order), [kinds]int{}
	by.asOf(&Question{Now: func() vehicle.UnixMilli { return now }, MaxAge: maxAge})
	c := Counts{make(map[string]int), make(map[string]int), make([]int, len(ages)+1)}
	since := make([]int64, len(ages))
	for i, age := range ages {
		since[i] = int64(now.Add(-age))
	}
	t.eachSlot(func(e *slot) {
		n[by.kind(e[2], e[3])]++
		newest, class := max(int64(e[2])>>stateBits, int64(e[3])), 0
		for _, s := range since {
			if newest < s {
				class++
			}
		}
		c.Ages[class]++
	})
	for kind, vehicles := range n {
		driving, throttle, a := ofKind(kind)
		c.Driving[drivingState(driving, a.Driving.State)] += vehicles
		c.Throttle[throttleState(throttle, a.Throttle.System)] += vehicles
	}
	return c
}

// eachSlot calls do for each vehicle, one shard after the other.
func (t *Table) eachSlot(do func(*slot)) {
	for i := range t.shards {
		t.shards[i].each(do)
	}
}

// ReadBetween returns the vehicles with a verdict whose reading is later than the time from, but not
// later than the time to. It leaves out vehicles whose vid is not stored (see [Table.KeepNames]).
func (t *Table) ReadBetween(from, to vehicle.UnixMilli) []Listed {
	var found []Listed
	within := func(at int64) bool { return int64(from) < at && at <= int64(to) }
	t.eachSlot(func(e *slot) {
		if within(int64(e[2])>>stateBits) || within(int64(e[3])) {
			found = append(found, Listed{Answer: value{e[2], e[3]}.unpack(), Place: Place{Hash: [2]uint64{e[0], e[1]}}})
		}
	})
	return t.named(found)
}

// named sets the vids of vehicles, and leaves out those whose vid is not stored.
func (t *Table) named(list []Listed) []Listed {
	for i := range list {
		list[i].ID = t.nameOf(key{list[i].Place.Hash[0], list[i].Place.Hash[1]})
	}
	return slices.DeleteFunc(list, func(l Listed) bool { return l.ID == "" })
}
