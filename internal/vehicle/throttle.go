package vehicle

import "time"

// ThrottleSystem has the values that are sent to clients.
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
	// while the car reports, and that of the newest reading of the plate for "normal". It is zero
	// if there is no verdict.
	Time UnixMilli
}

// At returns the outcome of a query at now for readings up to maxAge old: Stale also if Time is
// more than MaxAhead after now. If maxAge is zero or less, no verdict is stale.
func (v ThrottleVerdict) At(now UnixMilli, maxAge time.Duration) Outcome {
	return fresh(v.Time, now, maxAge)
}

// Throttle returns the throttle verdict. An anomaly remains until its rule has had readings, or the
// car has sent lists, that are calm for long enough (calmFor, codeGoneFor): silence ends none.
// Without a trouble code and any reading of the plate, there is no verdict.
func (s *State) Throttle() ThrottleVerdict {
	if s.FaultCode != (TroubleCode{}) {
		return ThrottleVerdict{ThrottleAnomaly, s.Time}
	}
	m := s.ThrottleMemory
	m.runRules(s)
	if m.Alarm.Since != 0 {
		return ThrottleVerdict{ThrottleAnomaly, s.Time}
	}
	return ThrottleVerdict{ThrottleNormal, s.plateTime()}
}

// plateTime has every plate sensor and the position that the engine computer commands.
func (s *State) plateTime() (newest UnixMilli) {
	for _, g := range [...]Signal{ThrottlePosition, ThrottlePositionB, RelativeThrottlePosition, ThrottleActuator} {
		newest = max(newest, s.Latest[g].Time)
	}
	return newest
}
