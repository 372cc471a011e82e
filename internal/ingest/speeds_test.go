//go:build !race

package ingest_test

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
)

type trip struct {
	minutes, every int // seconds between reports
	kmh            float64
	turns          bool
	noise          float64 // of a position, in metres
	holds          int     // reports with the same position
	sent           func(car int, kmh float64) float64
}

func (p trip) lines(n int) string {
	var b strings.Builder
	random := rand.New(rand.NewPCG(1, 2))
	for car := range n {
		var x, y, heading, wait, lat, lon float64
		v, corner, reports := 0.0, 80.0, 0
		for s := range 60 * p.minutes {
			target := p.kmh
			if p.turns && corner < 30 {
				target = 20
			}
			if wait--; wait > 0 {
				target = 0
			}
			v += max(-9, min(target-v, 5)) // km/h each second
			v = max(0, v)
			x, y, corner = x+v/3.6*math.Sin(heading), y+v/3.6*math.Cos(heading), corner-v/3.6
			if heading += v * 1e-5; corner <= 0 && p.turns {
				corner = 60 + 200*random.Float64()
				heading += math.Pi / 2 * float64(random.IntN(3)-1)
				if random.IntN(4) == 0 {
					wait = 40
				}
			}
			if s%p.every != 0 {
				continue
			}
			if reports++; reports%max(1, p.holds) == 0 {
				lat = 48 + (y+p.noise*random.NormFloat64())/111195
				lon = 11 + (x+p.noise*random.NormFloat64())/111195/math.Cos(48*math.Pi/180)
			}
			fmt.Fprintf(&b, `{"vid":"F%d","time":%d,"signals":{"Vehicle.Speed":%.1f,"Vehicle.CurrentLocation.Latitude":%.6f,`+
				`"Vehicle.CurrentLocation.Longitude":%.6f}}`+"\n", car, testNow.UnixMilli()-int64(60*p.minutes-s)*1000,
				p.sent(car, v), lat, lon)
		}
	}
	return b.String()
}

func times(factor float64) func(int, float64) float64 {
	return func(_ int, kmh float64) float64 { return kmh * factor }
}

func TestWrongSpeedsAreFound(t *testing.T) {
	some := func(n int, factor float64) func(int, float64) float64 {
		return func(car int, kmh float64) float64 {
			if car%n == 0 {
				return kmh * factor
			}
			return kmh
		}
	}
	unknown := func(car int, kmh float64) float64 { return kmh * float64(rand.IntN(2)) }
	const mps, mph, knots = 1 / 3.6, 1 / 1.609344, 1 / 1.852
	for name, c := range map[string]struct {
		trip
		cars int
		want string
	}{
		"right":                    {trip{30, 1, 50, true, 1, 1, times(1)}, 4, ""},
		"right, every 10 s":        {trip{120, 10, 50, true, 1, 1, times(1)}, 4, ""},
		"right, every 60 s":        {trip{600, 60, 50, true, 1, 1, times(1)}, 8, ""},
		"right, noise":             {trip{60, 1, 50, true, 12, 1, times(1)}, 8, ""},
		"right, noise, every 5 s":  {trip{60, 5, 50, true, 25, 1, times(1)}, 8, ""},
		"right, noise, slow":       {trip{60, 5, 15, false, 25, 1, times(1)}, 8, ""},
		"right, noise of 25 m":     {trip{240, 1, 15, true, 25, 1, times(1)}, 6, ""},
		"right, position repeated": {trip{30, 1, 50, false, 1, 5, times(1)}, 4, ""},
		"10 % too fast":            {trip{30, 1, 50, false, 1, 1, times(1.1)}, 4, ""},
		"m/s":                      {trip{30, 1, 50, true, 1, 1, times(mps)}, 4, "m/s 4 of 4"},
		"m/s, noise":               {trip{60, 5, 50, true, 8, 1, times(mps)}, 4, "m/s 4 of 4"},
		"m/s, one car":             {trip{60, 5, 50, true, 1, 1, times(mps)}, 1, "m/s 1 of 1"},
		"m/s, every 30 s":          {trip{60, 30, 110, false, 1, 1, times(mps)}, 4, "m/s 4 of 4"},
		"m/s, a third":             {trip{90, 5, 50, true, 1, 1, some(3, mps)}, 12, "m/s 4 of 12"},
		"m/s, position repeated":   {trip{30, 1, 50, false, 1, 5, times(mps)}, 4, "m/s 4 of 4"},
		"m/s, 0 for unknown":       {trip{120, 5, 90, false, 1, 1, some(1, mps)}, 4, "m/s 4 of 4"},
		"mph":                      {trip{30, 1, 50, true, 1, 1, times(mph)}, 4, "mph 4 of 4"},
		"mph, every 10 s":          {trip{60, 10, 90, false, 1, 1, times(mph)}, 4, "mph 4 of 4"},
		"knots":                    {trip{30, 1, 50, true, 1, 1, times(knots)}, 4, "knots 4 of 4"},
		"km/h taken for m/s":       {trip{60, 1, 50, true, 1, 1, times(3.6)}, 4, "km/h*3.6 4 of 4"},
		"a factor without a name":  {trip{30, 1, 50, true, 1, 1, times(0.43)}, 4, "2.4  4 of 4"},
		"0 for unknown":            {trip{60, 5, 50, true, 1, 1, unknown}, 4, ""},
		"always 0":                 {trip{30, 5, 50, true, 1, 1, times(0)}, 4, ""},
		"more cars than watched":   {trip{90, 5, 50, true, 1, 1, times(mps)}, 30, "m/s 16 of 16"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			f := newFixture(t)
			f.Log = slog.New(slog.NewTextHandler(&log, nil))
			_, key := f.add(t, "fleet", access.AllVehicles())
			_, url := startHTTP(t, f)
			for i, lines := 0, strings.SplitAfter(c.lines(c.cars), "\n"); i < len(lines); i += maxSamples {
				body := strings.Join(lines[i:min(len(lines), i+maxSamples)], "")
				request{body: body, status: 202}.send(t, url, key)
				request{body: body, status: 202}.send(t, url, key) // a repetition changes nothing
			}
			g, _ := f.Sources.Get("fleet")
			found := g.Seen().Speeds.Found
			got := ""
			if found.Factor != 0 {
				got = fmt.Sprintf("%s %d of %d", found.Unit, found.Vehicles, found.Compared)
				if found.Unit == "" {
					got = fmt.Sprintf("%.1f %s", found.Factor, got)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != min(1, len(c.want)) {
				t.Errorf("the warnings: got %d, want %d:\n%s", n, min(1, len(c.want)), log.String())
			}
			if n := f.Sources.WrongSpeeds()[cmp.Or(found.Unit, "other")]; n != min(1, len(c.want)) {
				t.Errorf("the sources with wrong speeds: got %d, want %d", n, min(1, len(c.want)))
			}
		})
	}
}
