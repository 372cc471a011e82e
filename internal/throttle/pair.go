package throttle

import "example.org/carstate/internal/signal"

// compare folds the readings of pair i at t, and returns how many seconds the comparison covers.
// Disagreement is a one-sided CUSUM (Page, 1954).
func (c Car) compare(i int, t signal.UnixMilli) (after float32, compared bool) {
	d, p := &pairs[i], &c.Pairs[i]
	sx, sy := &c.Sensors[d.x], &c.Sensors[d.y]
	x, y := c.reading(d.x), c.reading(d.y)
	if x.Time != t && y.Time != t || x.Time == 0 || y.Time == 0 {
		return 0, false
	}
	// If the gaps are short (bracketed), a reading of y can be compared with the range of x around
	// its time, and the other way round.
	together := x.Time == y.Time
	if c.waits(i, 0, d.x, together) || c.waits(i, 1, d.y, together) {
		return 0, false
	}
	bracketed := sx.Gap > 0 && sy.Gap > 0 &&
		(together || x.Time == t && t.Seconds(y.Time) <= sx.Gap || y.Time == t && t.Seconds(x.Time) <= sy.Gap)
	hx, hy := sx.span(), sy.span()
	settled := hx.width() <= settledWithin && hy.width() <= settledWithin
	free := d.free
	switch {
	case bracketed:
		after = min(t.Seconds(p.Last), coversMost)
	case together:
		after = min(t.Seconds(p.Last), coversAlone)
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
		p.Noise[0].Level = fade(p.Noise[0].Level, after, noiseDecay)
		p.Noise[1].Level = fade(p.Noise[1].Level, after, noiseDecay)
		// A repeated value may be old, and does not show where the partner of a stuck sensor is.
		waited := c.Lags[i][0].repeats() || c.Lags[i][1].repeats()
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
	healthy := c.Alarm.Since == 0 && c.FaultCode == (signal.TroubleCode{}) && off <= within
	if healthy && settled && !hx.saturated() && !hy.saturated() {
		p.learn(x.Value, y.Value, min(t.Seconds(last), coversMost))
	}
	return after, true
}

// sure reports whether the other sensor was read between the last two readings of this one. If both
// have one time stamp, the other may have been read up to a second before.
func (m *SensorMemory) sure(together bool) bool {
	return m.Gap <= sureWithin && (!together || m.Gap >= sureFrom)
}

func (p *PairMemory) mature() bool { return p.Weight >= matureAfter }

// slope is that of a ridge regression (see slopePrior).
func (p *PairMemory) slope() float32 { return (p.Sxy + slopePrior) / (p.Sxx + slopePrior) }

// doubt is the greatest error of the slope that is still possible.
func (p *PairMemory) doubt() float32 { return slopeDoubt * slopePrior / (p.Sxx + slopePrior) }

// off returns the distance of y from where the line leads from some value in x, or that of x if
// greater: while the slope is in doubt, one may be 0 although only one sensor moves. The result is
// not conclusive if almost any value agrees.
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

// expect returns where lines through (from, to) with a slope between flat and steep lead from a.
func expect(a span, from, to, flat, steep float32) span {
	lo, hi := a.lo-from, a.hi-from
	return span{to + min(lo*flat, lo*steep, hi*flat, hi*steep), to + max(lo*flat, lo*steep, hi*flat, hi*steep)}
}

// learn is West's incremental algorithm (1979), with exponential forgetting.
func (p *PairMemory) learn(x, y, weight float32) {
	if weight <= 0 {
		return
	}
	p.forget(pairMemory)
	dx, dy := x-p.MeanX, y-p.MeanY
	if p.Weight > 0 {
		weight = min(weight, slopeLeverage/max(dx*dx, 1))
	}
	p.Weight += weight
	share := weight / p.Weight
	p.MeanX += dx * share
	p.MeanY += dy * share
	p.Sxx += weight * (1 - share) * dx * dx
	p.Sxy += weight * (1 - share) * dx * dy
}

func (p *PairMemory) forget(weight float32) {
	if p.Weight > weight {
		keep := weight / p.Weight
		p.Weight, p.Sxx, p.Sxy = weight, p.Sxx*keep, p.Sxy*keep
	}
}

// observe folds a reading. partner is the range of the other sensor since began. Unless sure, the
// other may also have been in its range before that.
func (m *StuckMemory) observe(r signal.Reading, atEnd bool, partner span, began signal.UnixMilli, sure bool, after float32) {
	if m.Since == 0 || abs(r.Value-m.At) > stuckWithin {
		*m = StuckMemory{Since: r.Time, At: r.Value, Low: 100, High: 0, PrevLow: 0, PrevHigh: 100}
		return
	}
	if began < m.Since {
		return // a part of the range is from when this sensor had another value
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

func (m *NoiseMemory) moved(step float32) {
	m.Moved = min(m.Moved+max(0, min(step, noiseMost)-noiseFree), 2*noiseMost)
}

func (m *NoiseMemory) observe(width float32) {
	m.Level += max(0, m.Moved-max(width, m.Wide))
	m.Wide, m.Moved = width, 0
}
