package vehicle

// compare compares the values of the two sensors of pair i at the time t. One sensor must have been
// read at t. The other must have been read at t, or so shortly before t that the range of its
// values at t is known. compare returns how many seconds the comparison covers; compared is false
// if there was none.
//
// A comparison changes the pair's Disagreement, called E here. E is a one-sided CUSUM (E. S. Page,
// 1954) of the distance d between the two sensors, which [PairMemory.off] computes. A distance up
// to free is allowed: E rises while d is above free, and falls while d is below free. E is in
// percent × seconds, and d and free are in percent.
//
//	E = min(max(E + after·(min(d, disagreementMost) - free), 0), disagreementAlarm)
func (m *ThrottleMemory) compare(s *State, i int, t UnixMilli) (after float32, compared bool) {
	d, p := &throttlePairs[i], &m.Pairs[i]
	sx, sy := &m.Sensors[d.x], &m.Sensors[d.y]
	x, y := s.reading(d.x), s.reading(d.y)
	if x.Time != t && y.Time != t || x.Time == 0 || y.Time == 0 {
		return 0, false
	}
	// Between two readings of x that are close in time, x was somewhere in the range of its recent
	// readings. A reading of y from the time between these two can therefore be compared with that
	// range of x. In the same way, a reading of x can be compared with a range of y.
	together := x.Time == y.Time
	if m.waits(i, 0, d.x, together) || m.waits(i, 1, d.y, together) {
		return 0, false
	}
	bracketed := sx.Gap > 0 && sy.Gap > 0 &&
		(together || x.Time == t && t.seconds(y.Time) <= sx.Gap || y.Time == t && t.seconds(x.Time) <= sy.Gap)
	hx, hy := sx.span(), sy.span()
	settled := hx.width() <= settledWithin && hy.width() <= settledWithin
	free := d.free
	switch {
	case bracketed:
		after = min(t.seconds(p.Last), most)
	case together:
		after = min(t.seconds(p.Last), aloneMost)
		hx, hy = span{x.Value, x.Value}, span{y.Value, y.Value}
		settled = sx.Step <= settledWithin && sy.Step <= settledWithin
		free = aloneFree
	default:
		p.Noise[0].Moved, p.Noise[1].Moved = 0, 0
		return 0, false
	}
	last := p.Last
	p.Last = t
	ex, ey := hx, hy // where the sensors would be if their scales had no ends
	if p.slope() > 0 {
		ex, ey = sx.clipped(hx), sy.clipped(hy)
	}

	var off float32
	if p.mature() {
		var conclusive bool
		off, conclusive = p.off(hx, hy)
		apart := off
		if off > free {
			apart, conclusive = p.off(ex, ey)
		}
		if apart > free || conclusive {
			p.Disagreement = min(max(p.Disagreement+after*(min(apart, disagreementMost)-free), 0), disagreementAlarm)
		}
	}
	if bracketed {
		slope := min(max(abs(p.slope()), 0.5), 2)
		p.Noise[0].fade(after)
		p.Noise[1].fade(after)
		// A reading of one sensor between two readings of its partner can show that the sensor is
		// stuck. But the partner may be expected to follow a movement, or to be followed
		// (LagMemory.repeats). If it then repeats its value, the value may be an old one, and does
		// not show the partner's position.
		waited := m.Lags[i][0].repeats() || m.Lags[i][1].repeats()
		if x.Time == t {
			p.Noise[0].moved(sx.Step)
			if !waited || sx.Step != 0 {
				p.Stuck[1].observe(y, ey.saturated(), hx, sx.PrevStart, sx.sure(together), sx.timeCovered())
			}
		}
		if y.Time == t {
			p.Noise[1].moved(sy.Step)
			p.Noise[0].observe(ey.width() / slope)
			if !waited || sy.Step != 0 {
				p.Stuck[0].observe(x, ex.saturated(), hy, sy.PrevStart, sy.sure(together), sy.timeCovered())
			}
		}
		if x.Time == t {
			p.Noise[1].observe(ex.width() * slope)
		}
	} else {
		p.Stuck, p.Noise = [2]StuckMemory{}, [2]NoiseMemory{}
	}

	within := d.free
	if p.Weight < trustedAfter {
		within *= 2
	}
	healthy := m.Alarm.Since == 0 && s.FaultCode == (TroubleCode{}) && off <= within
	if healthy && settled && !hx.saturated() && !hy.saturated() {
		p.learn(x.Value, y.Value, min(t.seconds(last), most))
	}
	return after, true
}

// sure reports whether the times prove that the reading of the pair's other sensor was taken
// between the last two readings of this sensor. For this, the two readings of this sensor must be
// at most sureWithin apart. If the last readings of both sensors have the same time stamp
// (together), the other sensor may have been read up to a second before it; so the two readings of
// this sensor must also be at least sureFrom apart.
func (m *SensorMemory) sure(together bool) bool {
	return m.Gap <= sureWithin && (!together || m.Gap >= sureFrom)
}

// mature reports whether the pair's line y(x) is known well enough to compare the sensors.
func (p *PairMemory) mature() bool { return p.Weight >= matureAfter }

// slope returns the slope of y(x), computed by a ridge regression with the prior slope 1 and the
// weight λ = slopePrior: (Sxy+λ)/(Sxx+λ). It is near 1 while x has moved little, and later near the
// least-squares slope Sxy/Sxx.
func (p *PairMemory) slope() float32 { return (p.Sxy + slopePrior) / (p.Sxx + slopePrior) }

// doubt returns the greatest error of the slope that is still assumed to be possible. It is
// slopeDoubt times λ/(Sxx+λ), the remaining weight of the prior slope; λ is slopePrior.
func (p *PairMemory) doubt() float32 { return slopeDoubt * slopePrior / (p.Sxx + slopePrior) }

// off returns the least distance, in percent, by which two sensors disagree if sensor x is
// somewhere in the range x and sensor y somewhere in the range y. The result is the larger of two
// distances: that of y from the range expected from x, and that of x from the range expected from
// y. While the slope is in doubt, one of these two distances may be zero although the sensors
// disagree, for example if one sensor moves and the other does not. conclusive is false if both
// expected ranges are so wide that almost any value agrees, which shows nothing.
func (p *PairMemory) off(x, y span) (off float32, conclusive bool) {
	x, y = x.open(), y.open()
	flat, steep := p.slope()-p.doubt(), p.slope()+p.doubt()
	toY := expect(x, p.MeanX, p.MeanY, flat, steep)
	switch { // now the slopes of x as a function of y
	case flat > 0:
		flat, steep = 1/max(steep, slopeLeast), 1/max(flat, slopeLeast)
	case steep < 0:
		flat, steep = 1/min(steep, -slopeLeast), 1/min(flat, -slopeLeast)
	default:
		flat, steep = -1/slopeLeast, 1/slopeLeast
	}
	toX := expect(y, p.MeanY, p.MeanX, flat, steep)
	return max(y.distance(toY), x.distance(toX)), min(toY.width(), toX.width()) <= disagreementMost
}

// expect returns the range of y for all x in the range a, over all lines through the point (x, y) =
// (from, to) with a slope between flat and steep.
func expect(a span, from, to, flat, steep float32) span {
	lo, hi := a.lo-from, a.hi-from
	return span{to + min(lo*flat, lo*steep, hi*flat, hi*steep), to + max(lo*flat, lo*steep, hi*flat, hi*steep)}
}

// learn folds two positions at the same time, x of one sensor and y of the other, into the pair's
// weighted moments, from which the line y(x) is computed. First, learn scales the earlier moments
// down to a weight of at most 300 s (memory), which is exponential forgetting. Then it adds the two
// positions by D. H. D. West's incremental algorithm for a weighted mean and sum of squares (1979).
// The weight of a position far from the mean is limited to leverage/(x-MeanX)².
func (p *PairMemory) learn(x, y, weight float32) {
	if weight <= 0 {
		return
	}
	p.forget(memory)
	dx, dy := x-p.MeanX, y-p.MeanY
	if p.Weight > 0 {
		weight = min(weight, leverage/max(dx*dx, 1))
	}
	p.Weight += weight
	share := weight / p.Weight
	p.MeanX += dx * share
	p.MeanY += dy * share
	p.Sxx += weight * (1 - share) * dx * dx
	p.Sxy += weight * (1 - share) * dx * dy
}

// forget scales the moments down so that their total weight is at most weight.
func (p *PairMemory) forget(weight float32) {
	if p.Weight > weight {
		keep := weight / p.Weight
		p.Weight, p.Sxx, p.Sxy = weight, p.Sxx*keep, p.Sxy*keep
	}
}

// observe folds a sensor's reading r into the memory. partner is the range of the recent readings
// of the pair's other sensor, and began is the time of the oldest of these readings. If sure is
// false, the other sensor may have been outside this range when r was read, so observe extends the
// range by the other sensor's previous range. If atEnd is true, the sensor may be at the end of its
// scale. If the sensor is stuck, observe adds after, in seconds, to For.
func (m *StuckMemory) observe(r Reading, atEnd bool, partner span, began UnixMilli, sure bool, after float32) {
	if m.Since == 0 || abs(r.Value-m.At) > stuckWithin {
		*m = StuckMemory{Since: r.Time, At: r.Value, Low: 100, High: 0, PrevLow: 0, PrevHigh: 100}
		return
	}
	if began < m.Since {
		return // a part of the partner's range is from a time when this sensor had another value
	}
	lo, hi := partner.lo, partner.hi
	if !sure {
		lo, hi = min(lo, m.PrevLow), max(hi, m.PrevHigh)
	}
	m.PrevLow, m.PrevHigh = partner.lo, partner.hi
	m.Low, m.High = min(m.Low, hi), max(m.High, lo)
	room := float32(stuckRange)
	if atEnd {
		room = stuckRangeAtEnd
	}
	if m.High-m.Low > room {
		m.For = min(m.For+after, 2*stuckAlarm)
	}
}

func (m *NoiseMemory) fade(after float32) { m.Level = fade(m.Level, after, noiseDecay) }

// moved adds one movement of the sensor, by step percent, to Moved. A step above noiseMost is
// treated as noiseMost, and noiseFree is subtracted from each step.
func (m *NoiseMemory) moved(step float32) {
	m.Moved = min(m.Moved+max(0, min(step, noiseMost)-noiseFree), 2*noiseMost)
}

// observe adds Moved to Level, less the present width of the range in which the other sensor moved,
// or its previous width Wide, if that is greater. Level decays with time (see fade).
func (m *NoiseMemory) observe(width float32) {
	m.Level += max(0, m.Moved-max(width, m.Wide))
	m.Wide, m.Moved = width, 0
}
