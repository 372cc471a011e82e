package vehicle

import (
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
)

type Outcome uint8

const (
	Answered Outcome = iota
	Unknown          // no reading that could answer was ever received
	Stale
	NotDriving
)

func (o Outcome) String() string {
	return [...]string{"answered", "unknown", "stale", "not_driving"}[o]
}

// MaxAhead is how far a verdict may be ahead of the clock: ingest accepts 30 s, and the clocks of
// two nodes may differ by as much. Further ahead, a clock was wrong, so the age is unknown.
const MaxAhead = time.Minute

func fresh(t, now signal.UnixMilli, maxAge time.Duration) Outcome {
	switch {
	case t == 0:
		return Unknown
	case maxAge > 0 && (now.Sub(t) > maxAge || t.Sub(now) > MaxAhead):
		return Stale
	}
	return Answered
}

type DrivingVerdict driving.Verdict

// At is like [ThrottleVerdict.At], but returns NotDriving in place of Answered if the car is not
// being driven.
func (v DrivingVerdict) At(now signal.UnixMilli, maxAge time.Duration) Outcome {
	o := fresh(v.Time, now, maxAge)
	if o == Answered && v.NotDriving {
		return NotDriving
	}
	return o
}

func (s *State) Driving() DrivingVerdict { return DrivingVerdict(s.driving().Verdict()) }

func (s *State) ExplainDriving() signal.Explanation { return s.driving().Explain() }

type ThrottleVerdict struct {
	System throttle.System
	// Time is that of the newest reading of the plate; for an anomaly, of any signal, because a
	// known fault does not age while the car reports.
	Time signal.UnixMilli
}

// At returns Stale if Time is more than maxAge before now, or MaxAhead after. If maxAge is zero or
// less, no verdict is stale.
func (v ThrottleVerdict) At(now signal.UnixMilli, maxAge time.Duration) Outcome {
	return fresh(v.Time, now, maxAge)
}

// Throttle has a zero Time if neither a throttle code nor the plate was read. Silence ends no
// anomaly.
func (s *State) Throttle() ThrottleVerdict {
	c := s.judged(new(throttle.Memory))
	if c.FaultCode == (signal.TroubleCode{}) && c.Alarm.Since == 0 {
		return ThrottleVerdict{throttle.Normal, s.Latest.PlateTime()}
	}
	return ThrottleVerdict{throttle.Anomaly, s.Time}
}

func (s *State) ExplainThrottle() signal.Explanation {
	return s.judged(new(throttle.Memory)).Explain(s.Time)
}

func (s *State) ThrottleAlarm() throttle.Alarm { return s.judged(new(throttle.Memory)).Alarmed() }

// judged runs the rules for the newest readings in m, a copy, so that [State.Throttle] needs no
// allocation.
func (s *State) judged(m *throttle.Memory) throttle.Car {
	*m = s.ThrottleMemory
	c := s.throttle(m)
	c.RunRules()
	return c
}
