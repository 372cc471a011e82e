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
	// Time is the time of the reading behind the verdict. For a trouble code, this reading is the
	// newest list of codes. For a faulty sensor, it is the sensor's newest reading; if two sensors
	// are concerned, it is the older of their newest readings. For "normal", it is the newest
	// reading of the throttle plate. Time is zero if there is no verdict.
	Time UnixMilli
}

// At returns the outcome of a query at the time now that accepts readings up to maxAge old: Unknown
// if there is no verdict, Stale if Time is more than maxAge before now or more than MaxAhead after
// now, and otherwise Answered. If maxAge is zero or less, no verdict is stale.
func (v ThrottleVerdict) At(now UnixMilli, maxAge time.Duration) Outcome {
	return fresh(v.Time, now, maxAge)
}

// Throttle returns the throttle verdict. A trouble code of the throttle or the pedal is an anomaly
// until the car's lists of codes have had no such code for a minute. If the car sends no further
// list, the anomaly remains. An anomaly found by any other rule ends when that rule has had
// readings for a minute in which its measure was below half of its limit. It also ends when the car
// has driven for 10 minutes without readings of the sensors concerned, or when the anomaly has
// lasted for three drives. Without an anomaly, the verdict is "normal" if the throttle plate was
// ever read. Otherwise there is no verdict: the Time of the result is zero.
func (s *State) Throttle() ThrottleVerdict {
	if s.FaultCode != (TroubleCode{}) {
		return ThrottleVerdict{ThrottleAnomaly, s.Latest[DTCList].Time}
	}
	m := s.ThrottleMemory
	m.runRules(s)
	if a := &m.Alarm; a.Since != 0 {
		return ThrottleVerdict{ThrottleAnomaly,
			min(s.Latest[throttleSensors[a.X]].Time, s.Latest[throttleSensors[a.Y]].Time)}
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
