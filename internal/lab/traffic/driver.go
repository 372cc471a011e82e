package traffic

import (
	"math"
	"math/rand/v2"
)

// Intelligent Driver Model (Treiber, Hennecke, Helbing, Phys. Rev. E 62, 1805, 2000)
type driver struct {
	desiredMps  float64 // on an empty road, v0
	headwaySec  float64 // to the car ahead, T
	accelMps2   float64 // greatest, a
	brakeMps2   float64 // comfortable, b
	minGapMeter float64 // bumper to bumper in a standstill, s0
}

// hardestMps2 is what tyres allow on a dry road.
const hardestMps2 = 9

// follow returns a·(1 - (v/v0)⁴ - (s*/s)²), s* = s0 + max(0, v·T + v·(v-u)/(2·√(a·b))), with u = aheadMps
func (d *driver) follow(mps, gapMeter, aheadMps float64) float64 {
	free := mps / d.desiredMps
	free *= free
	wanted := d.minGapMeter + max(0, mps*d.headwaySec+mps*(mps-aheadMps)/(2*math.Sqrt(d.accelMps2*d.brakeMps2)))
	near := wanted / max(gapMeter, 0.1)
	return max(d.accelMps2*(1-free*free-near*near), -hardestMps2)
}

// like varies all but the gap in a standstill.
func (d driver) like(random *rand.Rand) driver {
	vary := func(by float64) float64 { return 1 + by*(2*random.Float64()-1) }
	d.desiredMps *= vary(0.1)
	d.headwaySec *= vary(0.2)
	d.accelMps2 *= vary(0.15)
	d.brakeMps2 *= vary(0.15)
	return d
}

type motion struct {
	driver
	meter float64 // from the road's beginning
	mps   float64
	mps2  float64 // over the last step
}

func (m *motion) advance(seconds float64) (meter float64) {
	after := m.mps + m.mps2*seconds
	if after >= 0 {
		meter = (m.mps + after) / 2 * seconds
		m.mps = after
		return meter
	}
	meter = m.mps * m.mps / (-2 * m.mps2)
	m.mps2, m.mps = -m.mps/seconds, 0
	return meter
}
