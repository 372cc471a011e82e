package vehicle

// Two sensors that should agree form a pair, and each of them is the partner of the other. Many
// loggers and gateways send rows: each row has one time and a value of every sensor. If a sensor
// was not read since the previous row, the row repeats the sensor's last value. So a sensor that is
// read every few seconds seems stationary while its partner moves. The rules therefore learn the
// lag of each sensor of a pair: the delay with which its reported value follows that of its
// partner. While this delay lasts, a repeated value is not treated as a reading.

// LagMemory is what is known of the lag of one sensor of a pair. Times are in hundredths of a
// second.
type LagMemory struct {
	// Behind is the time since the other sensor moved, if this sensor has not moved since then;
	// otherwise it is zero.
	Behind uint16
	// Lag is about the longest time from a movement of the other sensor until this sensor moved. It
	// is an exponentially weighted average that rises fast (weight 1/2) and falls slowly (1/64).
	Lag uint16
	// Led is set if the other sensor has moved once and this sensor has not moved since then. The
	// next movement of this sensor then shows its lag. Led is not set if both sensors moved at the
	// same time, or if the other sensor has moved more than once.
	Led bool
}

// repeats reports whether an unchanged value of this sensor may be an old reading that was sent
// again: the other sensor of the pair has moved so recently that the source may not have read this
// sensor since then. The time allowed is one and a half times Lag, plus lagSpare for pauses of the
// logger.
func (m *LagMemory) repeats() bool {
	return m.Behind > 0 && m.Lag >= lagLeast && m.Behind < m.Lag+m.Lag/2+lagSpare
}

// observe folds the readings of one time into the memory. The last readings were after hundredths
// of a second before; since then, this sensor moved by step. If the readings of the two sensors do
// not agree, this sensor may be wrong, so nothing is learned from its movement.
func (m *LagMemory) observe(after uint16, step float32, otherMoved, agree bool) {
	if m.Behind > 0 {
		m.Behind = addTime(m.Behind, after)
	}
	changed := step > 0
	if changed {
		switch {
		case !m.Led || !agree || step < followsBy || m.Behind > lagMost:
		case m.Behind > m.Lag:
			m.Lag += (m.Behind - m.Lag + 1) / 2
		default:
			m.Lag -= (m.Lag - m.Behind + 63) / 64
		}
		m.Behind, m.Led = 0, false
	}
	switch {
	case otherMoved && m.Behind == 0:
		m.Behind, m.Led = 1, !changed
	case otherMoved:
		m.Led = false // the other sensor has moved again, so it is unknown which of its movements is followed
	}
}

// observeLags updates Lags, the delays with which sensors follow each other, from the readings of
// the time t. It must be called after all readings of t have arrived. For each pair, followed
// reports whether one sensor has just followed a movement of the other. A movement of one sensor
// begins a delay of the other only if both sensors have a reading of the time t. Such common times
// are the sign of a source that may repeat old values; a source that gives each reading its own
// time repeats none.
func (m *ThrottleMemory) observeLags(s *State, t UnixMilli) (followed [NumThrottlePairs]bool) {
	after := hundredths(t - m.Last)
	for i := range throttlePairs {
		d, lags := &throttlePairs[i], &m.Lags[i]
		x, y := m.stepAt(s, d.x, t), m.stepAt(s, d.y, t)
		together := s.Latest[throttleSensors[d.x]].Time == t && s.Latest[throttleSensors[d.y]].Time == t
		if lags[0].Behind+lags[1].Behind == 0 && (!together || x < movesBy && y < movesBy) {
			continue
		}
		agree := m.agree(s, i)
		followed[i] = x > 0 && lags[0].repeats() || y > 0 && lags[1].repeats()
		lags[0].observe(after, x, together && y >= movesBy, agree)
		lags[1].observe(after, y, together && x >= movesBy, agree)
	}
	return followed
}

// agree reports whether the readings of a pair agree with what was learned about the pair. It is
// also true while nothing is known about the pair.
func (m *ThrottleMemory) agree(s *State, pair int) bool {
	d, p := &throttlePairs[pair], &m.Pairs[pair]
	x, y := s.reading(d.x).Value, s.reading(d.y).Value
	off, _ := p.off(span{x, x}, span{y, y})
	return !p.mature() || off <= d.free
}

// stepAt returns how far sensor i moved, in percent, to its reading at t. It returns 0 if there is
// no new reading at t, or no reading in the time bracketWithin before t.
func (m *ThrottleMemory) stepAt(s *State, i ThrottleSensor, t UnixMilli) float32 {
	if s.reading(i).Time != t || m.Sensors[i].PrevStart == t {
		return 0
	}
	return m.Sensors[i].Step
}

// isNew reports whether v of sensor i was newly read, and does not repeat the reading was. It is
// taken for a repetition if it equals was and if, in a pair with sensor i, the other sensor has
// moved so recently that sensor i may not have been read since then (see LagMemory.repeats).
func (m *ThrottleMemory) isNew(i ThrottleSensor, v float32, was Reading) bool {
	if was.Time == 0 || v != was.Value {
		return true
	}
	for k := range throttlePairs {
		d := &throttlePairs[k]
		if d.x == i && m.Lags[k][0].repeats() || d.y == i && m.Lags[k][1].repeats() {
			return false
		}
	}
	return true
}

// waits reports whether it is too early to compare the two sensors of a pair: sensor i may not have
// been read since the other sensor moved. side is 0 if i is the pair's sensor x, and 1 if it is y.
// together is set if the newest readings of both sensors have the same time.
func (m *ThrottleMemory) waits(pair, side int, i ThrottleSensor, together bool) bool {
	return m.Lags[pair][side].repeats() && (together || m.Ages[i] > 0 || m.Sensors[i].Step == 0)
}

// reading returns the sensor's newest reading that is not a repetition.
func (s *State) reading(i ThrottleSensor) Reading {
	r := s.Latest[throttleSensors[i]]
	r.Time -= 10 * UnixMilli(s.ThrottleMemory.Ages[i])
	return r
}

func hundredths(d UnixMilli) uint16 { return uint16(min(max(d/10, 1), 65535)) }

func addTime(a, b uint16) uint16 { return uint16(min(uint32(a)+uint32(b), 65535)) }
