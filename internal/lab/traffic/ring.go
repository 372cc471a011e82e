package traffic

import "math"

const (
	townLatitude  = 48.7
	townLongitude = 11.6
	meterADegree  = 6_371_009 * math.Pi / 180
)

type point struct{ eastMeter, northMeter float64 }

func (p point) to(q point) (meter float64) {
	return math.Hypot(q.eastMeter-p.eastMeter, q.northMeter-p.northMeter)
}

func (p point) degrees() (latitude, longitude float64) {
	return townLatitude + p.northMeter/meterADegree,
		townLongitude + p.eastMeter/(meterADegree*math.Cos(townLatitude*math.Pi/180))
}

// ring is a rectangle with rounded corners, driven clockwise.
type ring struct {
	middle                             point
	turned                             float64 // first side, in radians from north
	longMeter, shortMeter, radiusMeter float64 // straight parts, and radius of the corners
}

const widestRadiusMeter = 100

func newRing(lengthMeter float64) ring {
	g := ring{radiusMeter: min(widestRadiusMeter, lengthMeter/16)}
	straight := lengthMeter/2 - math.Pi*g.radiusMeter
	g.longMeter, g.shortMeter = straight*2/3, straight/3
	return g
}

func (g *ring) reachMeter() float64 {
	return math.Hypot(g.longMeter/2+g.radiusMeter, g.shortMeter/2+g.radiusMeter)
}

func (g *ring) lengthMeter() float64 {
	return 2 * (g.longMeter + g.shortMeter + math.Pi*g.radiusMeter)
}

// at returns the heading in radians from north.
func (g *ring) at(meter float64) (p point, heading float64) {
	length := g.lengthMeter()
	meter = math.Mod(math.Mod(meter, length)+length, length)
	side, other, corner := g.longMeter, g.shortMeter, g.radiusMeter*math.Pi/2
	along := g.turned
	for meter >= side+corner {
		meter -= side + corner
		side, other = other, side
		along += math.Pi / 2
	}
	ahead, left := meter-side/2, other/2+g.radiusMeter
	heading = along
	if meter > side {
		bend := (meter - side) / g.radiusMeter
		ahead = side/2 + g.radiusMeter*math.Sin(bend)
		left = other/2 + g.radiusMeter*math.Cos(bend)
		heading += bend
	}
	sin, cos := math.Sincos(along)
	return point{g.middle.eastMeter + ahead*sin - left*cos, g.middle.northMeter + ahead*cos + left*sin}, heading
}
