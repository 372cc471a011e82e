package evaluate

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// spotDegrees is about 11 m.
const spotDegrees = 0.0001

const (
	pictureLasts = 2 * time.Minute // how long a verdict is shown
	pictureEvery = time.Minute
)

// place is in units of spotDegrees, rounded down.
type place struct{ latitude, longitude int32 }

func (p place) middle() (latitude, longitude float64) {
	return (float64(p.latitude) + 0.5) * spotDegrees, (float64(p.longitude) + 0.5) * spotDegrees
}

type judgement struct {
	state driving.State
	at    signal.UnixMilli
}

// Picture has where cars were, and the states when most places had a jam.
type Picture struct {
	places      map[place]judgement
	first, next signal.UnixMilli // first sample and next check
	now         signal.UnixMilli
	most        int // jammed places at the time at
	at          signal.UnixMilli
	then        map[place]driving.State
}

// Add takes samples in order of time.
func (p *Picture) Add(x vehicle.Sample, said driving.State) {
	if p.places == nil {
		p.places = make(map[place]judgement)
		p.first, p.next = x.Time, x.Time.Add(pictureEvery)
	}
	if p.now = x.Time; p.now >= p.next {
		p.look()
		p.next = p.now.Add(pictureEvery)
	}
	latitude, ok := x.Value(signal.CurrentLatitude)
	longitude, also := x.Value(signal.CurrentLongitude)
	if ok && also {
		at := place{int32(math.Floor(float64(latitude) / spotDegrees)),
			int32(math.Floor(float64(longitude) / spotDegrees))}
		p.places[at] = judgement{said, x.Time}
	}
}

func (p *Picture) look() {
	jams, now := 0, make(map[place]driving.State, len(p.then))
	for at, j := range p.places {
		if p.now.Sub(j.at) > pictureLasts {
			continue
		}
		now[at] = j.state
		if j.state == driving.Jam {
			jams++
		}
	}
	if jams > p.most || p.then == nil {
		p.most, p.at, p.then = jams, p.now, now
	}
}

const mapHeight = 1000

// mapMarks are for no verdict, normal, slow and jam, of different colour and size.
var mapMarks = [...]struct {
	colour string
	size   float64
}{{"#cccccc", 2}, {"#3f9b5c", 3}, {"#e0a000", 4.5}, {"#c0281c", 6}}

// Map has the two sides of the date line at its two ends.
func (p *Picture) Map(name string) string {
	p.look()
	south, north, west, east := 90.0, -90.0, 180.0, -180.0
	for at := range p.places {
		latitude, longitude := at.middle()
		south, north = min(south, latitude), max(north, latitude)
		west, east = min(west, longitude), max(east, longitude)
	}
	narrow := math.Cos((south + north) / 2 * math.Pi / 180) // length of a degree east divided by that of one north
	wide, high := max((east-west)*narrow, spotDegrees), max(north-south, spotDegrees)
	const margin = 20
	scale := min((pageWidth-2*margin)/wide, (mapHeight-2*margin)/high)
	height := pageHeader + int(high*scale) + 3*margin

	title := fmt.Sprintf("%s, %s after its beginning, when most places were jammed", access.Printable(name),
		p.at.Sub(p.first).Round(time.Second))
	g := newPage(title, height)
	g.legend(margin, func(x int, state driving.State) { g.mark(float64(x+7), 21, state) })
	g.put(`<text x="%d" y="25" text-anchor="end">%s</text>`, pageWidth-margin, html.EscapeString(title))
	// Worse states are drawn above.
	order := slices.SortedFunc(maps.Keys(p.places), func(a, b place) int {
		return cmp.Or(cmp.Compare(p.then[a], p.then[b]), cmp.Compare(a.latitude, b.latitude),
			cmp.Compare(a.longitude, b.longitude))
	})
	type point struct {
		x, y  int
		state driving.State
	}
	drawn := make(map[point]bool)
	for _, at := range order {
		latitude, longitude := at.middle()
		spot := point{margin + int((longitude-west)*narrow*scale),
			pageHeader + margin + int((north-latitude)*scale), p.then[at]}
		if !drawn[spot] {
			drawn[spot] = true
			g.mark(float64(spot.x), float64(spot.y), spot.state)
		}
	}
	g.ruler(scale/metresPerDegree, margin, height-margin)
	return g.end()
}

func (p *page) mark(x, y float64, state driving.State) {
	m := mapMarks[state]
	p.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, x-m.size/2, y-m.size/2, m.size, m.size,
		m.colour)
}

const metresPerDegree = 111_200.0

func (p *page) ruler(perMetre float64, x, y int) {
	metres := 100.0
	for metres*perMetre < 60 {
		metres *= 10
	}
	p.put(`<path d="M%d %dv6h%.1fv-6" fill="none" stroke="%s"/>`, x, y-6, metres*perMetre, textColour)
	p.put(`<text x="%.1f" y="%d">%.0f m</text>`, float64(x)+metres*perMetre+6, y, metres)
}
