// Package vehicle holds what the service knows of a car: its ID, its state, and the verdicts.
//
// It and the packages below it, signal, driving and throttle, have no clock and no I/O, and must
// never know about bytes, topics, headers or storage.
package vehicle

import (
	"slices"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
)

// State is all that the service remembers of one vehicle, of a fixed size. The zero State has never
// reported.
type State struct {
	Time signal.UnixMilli
	// An "ignition off" that a later motion disproves is stored as [signal.IgnitionUndefined], with
	// its time.
	Latest signal.Latest
	driving.Memory
	// The throttle rules fold a reading when one with a later time arrives.
	ThrottleMemory throttle.Memory
}

// Fold folds a sample, without an allocation. A reading changes nothing if it is older than the
// newest of its group, or its signal was already read at that time; but of several lists of trouble
// codes, the first with a throttle code is kept.
func (s *State) Fold(x *Sample) (changed bool) {
	t, r := x.Time, x.Readings // Select removes unused readings
	newCodes := s.Latest[signal.DTCList].Time == t && s.ThrottleMemory.AddsCode(x.Codes, t)
	throttleNext := s.Latest.Select(&r, t, newCodes)
	if r.Empty() || t == 0 {
		return false
	}

	if r.Has(signal.DTCList) && slices.Contains(x.Codes, signal.TroubleCode{}) {
		s.relearn(t)
		return true
	}
	throttled := s.throttle(&s.ThrottleMemory)
	if throttleNext {
		throttled.RunRules()
	}
	drives := s.driving()
	if t > s.Time {
		drives.HoldSpeed(s.Time)
	}
	throttled.Observe(&r, t)
	before := signal.Reading{Value: s.Traffic.Kmh, Time: s.Traffic.At}
	parked := drives.Verdict().NotDriving
	drives.Observe(&r, t)
	s.Time = max(s.Time, t)
	s.Latest.Update(&r, t)
	throttled.ObserveCodes(&r, s.Time)
	drives.ObserveStop(before)
	if v := drives.Verdict(); parked && v.State != 0 {
		// A new drive: the car may have been silent since it parked, and be on another road.
		s.Traffic.Start, s.Traffic.Cruise = t, 0
	}
	return true
}

func (s *State) driving() driving.Car { return driving.Car{Memory: &s.Memory, Latest: &s.Latest} }

func (s *State) throttle(m *throttle.Memory) throttle.Car {
	return throttle.Car{Memory: m, Latest: &s.Latest, IgnitionOff: s.driving().IgnitionOff()}
}

func (s *State) relearn(t signal.UnixMilli) {
	clear(s.Latest[signal.EngineLoad : signal.MILOn+1])
	s.Latest[signal.DTCList].Time = t // so that the same sample again changes nothing
	s.ThrottleMemory, s.Time = throttle.Memory{}, max(s.Time, t)
}

func Observe(s State, x Sample) State {
	s.Fold(&x)
	return s
}
