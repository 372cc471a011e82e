package throttle

import "example.org/carstate/internal/signal"

// Observe changes the memories of single sensors only, so the readings of one time may arrive in
// any order. Latest must still have the previous readings.
func (c Car) Observe(r *signal.Readings, t signal.UnixMilli) {
	for i := range Sensor(NumSensors) {
		latest := c.Latest[signals[i]]
		v, ok := r.Value(signals[i])
		if !ok {
			continue
		}
		if c.isNew(i, v, latest) {
			c.Sensors[i].observe(i, v, c.reading(i), t)
			c.Ages[i] = 0
		} else {
			c.Ages[i] = addTime(c.Ages[i], hundredths(t-latest.Time))
		}
	}
}

func (m *SensorMemory) observe(i Sensor, v float32, was signal.Reading, t signal.UnixMilli) {
	gap := t.Seconds(was.Time)
	m.Step, m.Top = abs(v-was.Value), max(m.Top, uint8(v))
	if was.Time == 0 || gap > bracketWithin {
		m.Start, m.Lo, m.Hi = t, v, v
		m.PrevStart, m.PrevLo, m.PrevHi = t, v, v
		m.Gap, m.Travel = 0, 0
		return
	}
	m.Gap = gap
	m.Travel = fade(m.Travel, gap, travelDecay)
	falling := v < was.Value
	turned := v != was.Value && falling != (m.Marks&markFalling != 0)
	if turned {
		m.Marks ^= markFalling
	}
	if turned || i != PlateA {
		m.Travel += min(m.Step, travelMost)
	}
	if t-m.Start >= bucketMillis {
		m.PrevStart, m.PrevLo, m.PrevHi = m.Start, m.Lo, m.Hi
		m.Start, m.Lo, m.Hi = t, v, v
	} else {
		m.Lo, m.Hi = min(m.Lo, v), max(m.Hi, v)
	}
}

func (m *SensorMemory) timeCovered() float32 {
	if m.Gap == 0 {
		return coversAlone
	}
	return min(m.Gap, coversMost)
}

const (
	markFalling uint8 = 1 << iota
	markOpen
	markZero
)

const (
	lowEnd = 1 + iota
	highEnd
)

// end returns 0 if a healthy sensor of this car may be at v, or else which end v is. A plate that
// rests open is the flap of a diesel, which may read 0 while driving, unless it never did in
// drivenKnown.
func (m *Memory) end(i Sensor, v float32) int {
	sensor := &m.Sensors[i]
	switch {
	case v <= lowLimit && sensor.RestFor >= restKnown && sensor.Rest >= liveZero &&
		(sensor.Rest < restsClosedBelow || m.Driven >= drivenKnown && sensor.Marks&markZero == 0):
		return lowEnd
	case v >= highLimit && sensor.Marks&markOpen == 0:
		return highEnd
	}
	return 0
}

// observeScale learns where a sensor rests, and adds after, in seconds, to its time at an end.
// first means that it was elsewhere before.
func (c Car) observeScale(i Sensor, t signal.UnixMilli, after float32, first bool) {
	sensor, v := &c.Sensors[i], c.Latest[signals[i]].Value
	speed, _ := c.Latest.Speed()
	stands := speed.Time != 0 && speed.Value == 0 && t.Sub(speed.Time) <= engineHolds
	if stands && (sensor.RestFor < restKnown || sensor.Rest >= restsClosedBelow && v > lowLimit) {
		if sensor.RestFor == 0 || uint8(v) < sensor.Rest {
			sensor.Rest = uint8(v)
		}
		sensor.RestFor = min(addTime(sensor.RestFor, uint16(100*after)), restKnown)
	}
	if i == PlateA && c.Driven < drivenKnown && v >= highLimit {
		sensor.Marks |= markOpen
	} else if i == PlateA && c.Driven < drivenKnown && v <= lowLimit {
		sensor.Marks |= markZero
	} else if i == PlateA && speed.Value > signal.MovingKmh && t.Sub(speed.Time) <= engineHolds {
		c.Driven = min(addTime(c.Driven, uint16(100*after)), drivenKnown)
	}
	switch at := c.end(i, v); {
	case at == 0 || first:
		sensor.AtLimit = 0
	case at == lowEnd && (i != PlateA || sensor.Rest < restsClosedBelow), // otherwise a flap, which may be closed
		c.closed(i, t, stands) == (at == highEnd), c.Alarm.Rule == RuleElectricalLimit && c.Alarm.X == i:
		// A sensor with an anomaly needs no further witness.
		sensor.AtLimit = min(sensor.AtLimit+after, 2*highLimitAlarm)
	}
}

// closed reports whether another reading shows that sensor i cannot be at 100 %.
func (c Car) closed(i Sensor, t signal.UnixMilli, stands bool) bool {
	switch i {
	case PedalD, PedalE:
		f := &c.Follow
		return f.RestFor >= restsFor && f.Rest < restsClosedBelow && f.Ignored <= f.Followed+1 && c.recent(PlateA, t) &&
			c.reading(PlateA).Value <= f.Rest+settledWithin
	case PlateA:
		for _, pedal := range [...]Sensor{PedalD, PedalE} {
			if p := &c.Sensors[pedal]; c.recent(pedal, t) && p.RestFor >= restKnown {
				return c.reading(pedal).Value <= float32(p.Rest)+2*settledWithin
			}
		}
		if c.recent(Load, t) {
			return c.reading(Load).Value < fullLoad
		}
		return stands
	}
	return false // the pair's rule compares sensor B and the command with A
}

// noAnswer reports whether several signals were read, and all were 0, as from an adapter that has
// lost the car. Vehicle.Speed may come from a receiver, and go on; the plate's sensors alone at 0
// may then have no supply.
func (c Car) noAnswer(t signal.UnixMilli) bool {
	zeros, plates, moves := 0, 0, false
	for _, g := range [...]signal.Signal{signal.ThrottlePosition, signal.ThrottlePositionB, signal.ThrottleActuator, signal.AcceleratorPositionD,
		signal.AcceleratorPositionE, signal.EngineLoad, signal.Speed, signal.OBDSpeed, signal.EngineSpeed} {
		switch r := &c.Latest[g]; {
		case r.Time == 0 || t.Sub(r.Time) > engineHolds:
		case r.Value == 0:
			zeros++
			if g >= signal.ThrottlePosition && g <= signal.ThrottleActuator {
				plates++
			}
		case g == signal.Speed:
			moves = true
		default:
			return false
		}
	}
	return zeros > 1 && (!moves || zeros > plates)
}

// span is where a sensor was around the time of its last reading.
type span struct{ lo, hi float32 }

func (m *SensorMemory) span() span { return span{min(m.Lo, m.PrevLo), max(m.Hi, m.PrevHi)} }

func (a span) width() float32 { return a.hi - a.lo }

func (a span) distance(b span) float32 { return max(0, a.lo-b.hi, b.lo-a.hi) }

const anywhere = 1000

func (a span) saturated() bool { return a.lo <= 100-saturatedFrom || a.hi >= saturatedFrom }

// clipped extends a far upwards if the sensor is at the highest position ever read, which may be
// the end of its scale.
func (m *SensorMemory) clipped(a span) span {
	if m.Top >= clipsFrom && a.hi >= float32(m.Top) {
		a.hi = anywhere
	}
	return a
}

// open moves a saturated bound far outwards, where the true position may be.
func (a span) open() span {
	if a.lo <= 100-saturatedFrom {
		a.lo = -anywhere
	}
	if a.hi >= saturatedFrom {
		a.hi = anywhere
	}
	return a
}

// fade approximates level·e^(-step/decay) for short steps, by one division.
func fade(level, step, decay float32) float32 { return level * decay / (decay + step) }

func abs(x float32) float32 { return max(x, -x) }
