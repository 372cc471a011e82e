package vehicle

// observeThrottle folds the sensor readings of a sample into the memories of these sensors. It
// changes nothing but these memories, so the readings of one time may arrive in any order and in
// several samples. The rules run over the memories when a sample with a later time arrives, or when
// a caller asks for the verdict. The caller must replace the previous readings in the field Latest
// only after this call.
func (s *State) observeThrottle(r *Readings, t UnixMilli) {
	m := &s.ThrottleMemory
	for i := range ThrottleSensor(NumThrottleSensors) {
		latest := s.Latest[throttleSensors[i]]
		v, ok := r.Value(throttleSensors[i])
		if !ok {
			continue
		}
		if i != Load {
			m.Sensors[i].observeLimit(i, v, latest, t)
		}
		if m.isNew(i, v, latest) {
			m.Sensors[i].observe(v, s.reading(i), t)
			m.Ages[i] = 0
		} else {
			m.Ages[i] = addTime(m.Ages[i], hundredths(t-latest.Time))
		}
	}
}

// observe folds the reading v, taken at t, into the memory. The parameter was is the previous
// reading.
func (m *SensorMemory) observe(v float32, was Reading, t UnixMilli) {
	gap := t.seconds(was.Time)
	m.Step = abs(v - was.Value)
	if was.Time == 0 || gap > bracketWithin {
		m.Start, m.Lo, m.Hi = t, v, v
		m.PrevStart, m.PrevLo, m.PrevHi = t, v, v
		m.Gap, m.Travel = 0, 0
		return
	}
	m.Gap = gap
	m.Travel = fade(m.Travel, gap, travelDecay) + min(m.Step, travelMost)
	if t-m.Start >= bucketMillis {
		m.PrevStart, m.PrevLo, m.PrevHi = m.Start, m.Lo, m.Hi
		m.Start, m.Lo, m.Hi = t, v, v
	} else {
		m.Lo, m.Hi = min(m.Lo, v), max(m.Hi, v)
	}
}

// timeCovered returns how many seconds the last reading adds to the measures of the rules. The
// result is Gap, but at most the constant most, or aloneMost if Gap is zero.
func (m *SensorMemory) timeCovered() float32 {
	if m.Gap == 0 {
		return aloneMost
	}
	return min(m.Gap, most)
}

// limit returns at which end of the electrical range a reading is: 1 for the low end, 2 for the
// high end, 0 for neither.
func limit(v float32) uint8 {
	switch {
	case v <= lowLimit:
		return 1
	case v >= highLimit:
		return 2
	}
	return 0
}

// observeLimit folds the reading v of sensor i, taken at t, into AtLimit, OffLimits and
// RestingEnds. The parameter was is the previous reading. A repetition of an old reading is folded
// in the same way as a new reading. A healthy sensor is at an end of its range only where it may
// rest, so even a repeated reading at the other end is evidence of a fault.
func (m *SensorMemory) observeLimit(i ThrottleSensor, v float32, was Reading, t UnixMilli) {
	at := limit(v)
	if was.Time == 0 {
		m.RestingEnds |= at
		return
	}
	after := t.seconds(was.Time)
	if after > bracketWithin {
		after = aloneMost
	}
	after = min(after, most)
	seen := float32(plateSeen)
	if i == PedalD || i == PedalE {
		seen = pedalSeen
	}
	switch {
	case at == 0:
		m.AtLimit, m.OffLimits = 0, min(m.OffLimits+after, seen)
	case m.OffLimits < seen:
		m.RestingEnds |= at
	case limit(was.Value) == at:
		m.AtLimit = min(m.AtLimit+after, 2*highLimitAlarm)
	default:
		m.AtLimit = 0
	}
}

// span is the range in which a sensor was around the time of its last reading.
type span struct{ lo, hi float32 }

func (m *SensorMemory) span() span { return span{min(m.Lo, m.PrevLo), max(m.Hi, m.PrevHi)} }

func (a span) width() float32 { return a.hi - a.lo }

// distance returns the distance between two ranges, 0 if they touch.
func (a span) distance(b span) float32 { return max(0, a.lo-b.hi, b.lo-a.hi) }

// saturated reports whether a bound may be the end of what the sensor can report.
func (a span) saturated() bool { return a.lo <= 100-saturated || a.hi >= saturated }

// open returns the range in which the true position may be. It moves a saturated bound far
// outwards, because the true position may be anywhere beyond it.
func (a span) open() span {
	const anywhere = 1000
	if a.lo <= 100-saturated {
		a.lo = -anywhere
	}
	if a.hi >= saturated {
		a.hi = anywhere
	}
	return a
}

// fade returns what is left of level after a time step, in which it decays with the time constant
// decay: level·decay/(decay+step). It approximates the exponential level·e^(-step/decay) for steps
// much shorter than decay, and costs one division.
func fade(level, step, decay float32) float32 { return level * decay / (decay + step) }

// seconds returns m − n in seconds.
func (m UnixMilli) seconds(n UnixMilli) float32 { return float32(m-n) / 1000 }

func abs(x float32) float32 { return max(x, -x) }
