package throttle

import "example.org/carstate/internal/signal"

// Many loggers and gateways send rows with all sensors, and repeat the value of one not read again.
// That one seems stationary while the other of its pair moves. So the rules learn the lag with
// which one sensor follows the other; for so long, a repeated value is not a reading.

// LagMemory is a sensor's delay in hundredths of a second.
type LagMemory struct {
	Behind uint16 // since the other sensor moved, if this one has not moved since
	Lag    uint16 // about the longest delay: an average that rises fast (weight 1/2) and falls slowly (1/64)
	Led    bool   // The other sensor has moved exactly once since, so the next movement shows the lag.
}

// repeats reports whether an unchanged value may be an old reading.
func (m *LagMemory) repeats() bool {
	return m.Behind > 0 && m.Lag >= lagLeast && m.Behind < m.Lag+m.Lag/2+lagSpare
}

// observe learns nothing if the sensors disagree, because this one may be wrong.
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
		m.Led = false // it is unknown which of the movements is followed
	}
}

// observeLags learns lags, and reports for each pair whether a sensor has just followed the other.
// A lag begins only with readings of one time stamp: the sign that a source may repeat old values.
func (c Car) observeLags(t signal.UnixMilli) (followed [NumPairs]bool) {
	after := hundredths(t - c.Last)
	for i := range pairs {
		d, lags := &pairs[i], &c.Lags[i]
		x, y := c.stepAt(d.x, t), c.stepAt(d.y, t)
		together := c.Latest[signals[d.x]].Time == t && c.Latest[signals[d.y]].Time == t
		if lags[0].Behind+lags[1].Behind == 0 && (!together || x < movesBy && y < movesBy) {
			continue
		}
		agree := c.agree(i)
		followed[i] = x > 0 && lags[0].repeats() || y > 0 && lags[1].repeats()
		lags[0].observe(after, x, together && y >= movesBy, agree)
		lags[1].observe(after, y, together && x >= movesBy, agree)
	}
	return followed
}

// agree is also true while nothing is known about the pair.
func (c Car) agree(pair int) bool {
	d, p := &pairs[pair], &c.Pairs[pair]
	x, y := c.reading(d.x).Value, c.reading(d.y).Value
	off, _ := p.off(span{x, x}, span{y, y})
	return !p.mature() || off <= d.free
}

func (c Car) stepAt(i Sensor, t signal.UnixMilli) float32 {
	if c.reading(i).Time != t || c.Sensors[i].PrevStart == t {
		return 0
	}
	return c.Sensors[i].Step
}

func (m *Memory) isNew(i Sensor, v float32, was signal.Reading) bool {
	if was.Time == 0 || v != was.Value {
		return true
	}
	for k := range pairs {
		d := &pairs[k]
		if d.x == i && m.Lags[k][0].repeats() || d.y == i && m.Lags[k][1].repeats() {
			return false
		}
	}
	return true
}

// waits reports whether sensor i (side 0 is x, 1 is y) may not have been read since the other
// moved.
func (m *Memory) waits(pair, side int, i Sensor, together bool) bool {
	return m.Lags[pair][side].repeats() && (together || m.Ages[i] > 0 || m.Sensors[i].Step == 0)
}

// reading returns the newest reading that is not a repetition.
func (c Car) reading(i Sensor) signal.Reading {
	r := c.Latest[signals[i]]
	r.Time -= 10 * signal.UnixMilli(c.Ages[i])
	return r
}

func hundredths(d signal.UnixMilli) uint16 { return uint16(min(max(d/10, 1), 65535)) }

func addTime(a, b uint16) uint16 { return uint16(min(uint32(a)+uint32(b), 65535)) }
