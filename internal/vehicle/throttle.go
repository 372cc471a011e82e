package vehicle

import "time"

// ThrottleSystem says whether a car's throttle system is healthy. The values are those sent
// to clients.
type ThrottleSystem uint8

// The states of the throttle system.
const (
	ThrottleAnomaly ThrottleSystem = 0
	ThrottleNormal  ThrottleSystem = 1
)

// String returns the state as text: "normal" or "anomaly".
func (t ThrottleSystem) String() string {
	if t == ThrottleNormal {
		return "normal"
	}
	return "anomaly"
}

// ThrottleVerdict is what the throttle rules conclude about a car from its readings.
type ThrottleVerdict struct {
	System ThrottleSystem
	// Time is the time of the car's newest reading if there is an anomaly, because a known fault does
	// not age while the car reports. For "normal", it is that of the newest reading of the throttle
	// plate. Time is zero if there is no verdict.
	Time UnixMilli
}

// At returns the outcome of a query at the time now that accepts readings up to maxAge old: Unknown
// if there is no verdict, Stale if Time is more than maxAge before now or more than MaxAhead after
// now, and otherwise Answered. If maxAge is zero or less, no verdict is stale.
func (v ThrottleVerdict) At(now UnixMilli, maxAge time.Duration) Outcome {
	return fresh(v.Time, now, maxAge)
}

// Throttle returns the throttle verdict. A trouble code of the throttle or the pedal is an anomaly
// until the car's lists of codes have been without such a code for a minute, or for longer if the
// car was seen to show the code less often. If the car sends no further list, the anomaly remains.
// An anomaly found by any other rule ends when that rule has had readings for a minute in which its
// measure was below half of its limit (longer if the anomaly has returned). While the car does not
// send the readings of that rule, the anomaly remains. Without a reading of the throttle plate,
// there is no verdict unless there is a trouble code: the Time of the result is zero.
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

// plateTime returns the time of the newest reading of the throttle plate's position, from any plate
// sensor or as commanded by the engine computer. It returns zero if there is no such reading.
func (s *State) plateTime() (newest UnixMilli) {
	for _, g := range [...]Signal{ThrottlePosition, ThrottlePositionB, RelativeThrottlePosition, ThrottleActuator} {
		newest = max(newest, s.Latest[g].Time)
	}
	return newest
}
