package vehicle

import (
	"time"

	"example.org/carstate/internal/signal"
)

type ThrottleSystem uint8

const (
	ThrottleAnomaly ThrottleSystem = 0
	ThrottleNormal  ThrottleSystem = 1
)

func (t ThrottleSystem) String() string {
	if t == ThrottleNormal {
		return "normal"
	}
	return "anomaly"
}

type ThrottleVerdict struct {
	System ThrottleSystem
	// Time is that of the car's newest reading for an anomaly, because a known fault does not age
	// while the car reports; otherwise that of the plate.
	Time signal.UnixMilli
}

// At also returns Stale if Time is more than MaxAhead after now. If maxAge is zero or less, no
// verdict is stale.
func (v ThrottleVerdict) At(now signal.UnixMilli, maxAge time.Duration) Outcome {
	return fresh(v.Time, now, maxAge)
}

// Throttle has no verdict without a trouble code and any reading of the plate. Silence ends no
// anomaly.
func (s *State) Throttle() ThrottleVerdict {
	if s.FaultCode != (signal.TroubleCode{}) {
		return ThrottleVerdict{ThrottleAnomaly, s.Time}
	}
	m := s.ThrottleMemory
	m.runRules(s)
	if m.Alarm.Since != 0 {
		return ThrottleVerdict{ThrottleAnomaly, s.Time}
	}
	return ThrottleVerdict{ThrottleNormal, s.plateTime()}
}

// plateTime has every sensor of the plate and its command.
func (s *State) plateTime() (newest signal.UnixMilli) {
	for _, g := range [...]signal.Signal{signal.ThrottlePosition, signal.ThrottlePositionB, signal.RelativeThrottlePosition, signal.ThrottleActuator} {
		newest = max(newest, s.Latest[g].Time)
	}
	return newest
}
