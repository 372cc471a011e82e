//go:build !race

package roadmap_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json/v2"
	"io"
	"math"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/roadtest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func served(t *testing.T, r *roadmap.Reader, query string, way []string) roadmap.Collection {
	t.Helper()
	q, err := url.ParseQuery(query)
	testkit.NoError(t, err)
	box, limit, err := roadmap.Asked(q)
	testkit.NoError(t, err)
	w := httptest.NewRecorder()
	roadmap.Serve(w, httptest.NewRequest("GET", "/", nil), r.Within(box, noon), limit, way)
	if kind := w.Header().Get("Content-Type"); kind != "application/geo+json" {
		t.Errorf("%q: got the content type %s, want application/geo+json", query, kind)
	}
	var c roadmap.Collection
	if err := json.Unmarshal(w.Body.Bytes(), &c, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%q: got %s, %v; want a collection", query, w.Body, err)
	}
	return c
}

// To the east, free flow is 50 km/h, and traffic now moves at 10 km/h. A second street 2 km north
// of it has no jam.
func jammedStreet() *roadmap.Reader {
	m := new(roadmap.Reader)
	east := roadtest.Street{Latitude: 44.5, Longitude: 11.34, Heading: 90, Metres: 1500}
	north := roadtest.Street{Latitude: 44.52, Longitude: 11.34, Heading: 0, Metres: 1500}
	for _, s := range []roadtest.Street{east, north} {
		roadtest.Feed(&m.Map, s.Learn(50, noon))
	}
	roadtest.Feed(&m.Map, east.Drive("slow", 8, 10, noon.Add(-580*time.Second), 5*time.Second))
	roadtest.Feed(&m.Map, north.Drive("fast", 8, 50, noon.Add(-2*time.Minute), 5*time.Second))
	return m
}

func TestJammedStreet(t *testing.T) {
	r := jammedStreet()
	c := served(t, r, "", nil)
	if c.Type != "FeatureCollection" || !c.At.Equal(noon) || c.Truncated || c.Known != len(c.Features) ||
		len(c.Features) < 18 {
		t.Fatalf("got %d of %d stretches, truncated %t, at %v; want all of 18 or more, at %v",
			len(c.Features), c.Known, c.Truncated, c.At, noon)
	}
	last, states := 0., map[string]int{}
	for _, f := range c.Features {
		p := f.Properties
		states[p.State]++
		from, to := f.Geometry.Coordinates[0], f.Geometry.Coordinates[1]
		perDegree := 111_195 * math.Cos(44.5*math.Pi/180)
		if metres := math.Hypot((to[0]-from[0])*perDegree, (to[1]-from[1])*111_195); math.Abs(metres-70) > 1 {
			t.Errorf("%s: got a line of %g m, want 70 m", p.Stretch, metres)
		}
		for _, x := range []float64{from[0], from[1], to[0], to[1]} {
			if math.Abs(x*1e6-math.Round(x*1e6)) > 1e-6 {
				t.Errorf("%s: got the coordinate %g, want at most 6 decimals", p.Stretch, x)
			}
		}
		if p.Share == nil {
			if last = 2; p.SpeedKmh != nil || p.Cars != 0 || p.State != "unknown" {
				t.Errorf("got %+v, want an unknown stretch without figures", p)
			}
			continue
		}
		if *p.Share < last {
			t.Errorf("%s: got the share %g after %g, want the worst first", p.Stretch, *p.Share, last)
		}
		if last = *p.Share; math.Abs(*p.Share-*p.SpeedKmh/p.FreeFlowKmh) > 0.01 || p.Cars < 3 || p.State == "unknown" {
			t.Errorf("got %+v, want consistent figures of at least three cars", p)
		}
	}
	worst := c.Features[0].Properties
	if worst.State != "jam" || *worst.Share > driving.JamShare || worst.Heading != 90 ||
		!strings.HasSuffix(worst.Stretch, "-e") || worst.Since == nil || worst.Since.After(noon) || worst.Young {
		t.Errorf("the worst: got %+v, want an eastbound jam, which is not young", worst)
	}
	if line := c.Features[0].Geometry.Coordinates; line[1][0] <= line[0][0] || line[0][1] != line[1][1] {
		t.Errorf("the eastbound line: got %v, want it from west to east", line)
	}
	if states["jam"] < 5 || states["normal"] < 5 {
		t.Errorf("got states %v, want at least 5 jam and 5 normal", states)
	}
	if s := r.Within(road.World, noon); s.ByState[driving.Jam] != states["jam"] || s.ByState[0] != states["unknown"] {
		t.Errorf("the states: got %v, want %v", s.ByState, states)
	}

	part := served(t, r, "bbox=11.3,44.515,11.4,44.6", []string{"a-n", "b-n"})
	if len(part.Features) < 8 || len(part.Features) >= len(c.Features) || part.Truncated || len(part.Way) != 2 {
		t.Errorf("the part: got %d of %d, truncated %t, a way of %d; want 8 or more, not all, a way of 2",
			len(part.Features), len(c.Features), part.Truncated, len(part.Way))
	}
	for _, f := range part.Features {
		if f.Properties.State == "jam" {
			t.Errorf("the part: got %+v, want the jam elsewhere", f)
		}
	}
	few := served(t, r, "limit=2", nil)
	if len(few.Features) != 2 || !few.Truncated || few.Known != c.Known ||
		few.Features[0].Properties.Stretch != worst.Stretch {
		t.Errorf("limit 2: got %+v, want 2 of %d, truncated, the first %s", few, c.Known, worst.Stretch)
	}
	if none := served(t, r, "bbox=0,0,1,1", nil); none.Features == nil || len(none.Features) != 0 || none.Known != 0 {
		t.Errorf("a box in the ocean: got %+v, want an empty list", none)
	}
}

func TestJams(t *testing.T) {
	m := new(roadmap.Reader)
	const end = 11.34 + 1000./111_195/0.71325 // of the first street; the divisor is cos(44.5°)
	east := roadtest.Street{Name: "a", Latitude: 44.5, Longitude: 11.34, Heading: 90, Metres: 1000}
	bend := roadtest.Street{Name: "b", Latitude: 44.5, Longitude: end, Heading: 45, Metres: 600}
	west := roadtest.Street{Name: "c", Latitude: 44.5001, Longitude: end, Heading: 270, Metres: 1000}
	for _, s := range []roadtest.Street{east, bend, west} {
		roadtest.Feed(&m.Map, s.Learn(50, noon))
	}
	bend.Name = east.Name
	now := slices.Concat(east.Drive("slow", 70, 10, noon.Add(-1000*time.Second), 15*time.Second),
		bend.Drive("slow", 70, 10, noon.Add(-640*time.Second), 15*time.Second),
		west.Drive("slow", 45, 10, noon.Add(-700*time.Second), 15*time.Second))
	now = slices.DeleteFunc(now, func(x vehicle.Sample) bool { return x.Time > signal.At(noon) })
	slices.SortStableFunc(now, func(a, b vehicle.Sample) int { return cmp.Compare(a.Time, b.Time) })
	roadtest.Feed(&m.Map, now)
	c := served(t, m, "", nil)
	if len(c.Jams) != 2 {
		t.Fatalf("got %+v, want two jams", c.Jams)
	}
	// A car shows traffic only after its first 200 m or so.
	for i, metres := range []float64{1380, 830} {
		j := c.Jams[i]
		delay := metres * 3.6 * (1./10 - 1./50)
		if math.Abs(j.LengthMetres-metres) > 100 || math.Abs(j.DelaySeconds-delay) > delay/6 || math.Abs(j.SpeedKmh-10) > 1 ||
			j.Since == nil || !j.Since.Before(noon.Add(-5*time.Minute)) || math.Abs(j.Latitude-44.502) > .004 {
			t.Errorf("got the jam %+v, want %g m and a delay of %g s", j, metres, delay)
		}
	}
}

func TestReader_HidesStretchesWithFewCars(t *testing.T) {
	m := new(roadmap.Reader)
	s := roadtest.Street{Latitude: 44.5, Longitude: 11.34, Heading: 90, Metres: 1500}
	for i := range 8 {
		roadtest.Feed(&m.Map, s.Drive("car", 2, 30, noon.Add(time.Duration(i-9)*15*time.Minute), 10*time.Second))
	}
	roadtest.Feed(&m.Map, s.Drive("car", 2, 30, noon.Add(-4*time.Minute), 10*time.Second))
	if c := served(t, m, "", nil); m.Len() == 0 || c.Known != 0 || len(c.Features) != 0 {
		t.Errorf("the stretches of one car: got %d of %d shown, %+v; want 0 of some", c.Known, m.Len(), c.Features)
	}
}

func TestManyStretches(t *testing.T) {
	testkit.Slow(t, "it draws a hundred thousand stretches")
	m := new(roadmap.Reader)
	for i := range 260 { // parallel, one cell apart
		s := roadtest.Street{Latitude: 44 + float64(i)*0.0016, Longitude: 11, Heading: 90, Metres: 12_000}
		roadtest.Feed(&m.Map, s.Drive("car", 8, 144, noon.Add(-20*time.Minute), 2*time.Second))
	}
	jam := roadtest.Street{Latitude: 44.2, Longitude: 11, Heading: 90, Metres: 1000}
	roadtest.Feed(&m.Map, jam.Drive("slow", 8, 10, noon.Add(-6*time.Minute), 5*time.Second))
	s := m.Within(road.World, noon)
	if s.Known <= roadmap.MaxStretches || len(s.Worst) != roadmap.MaxStretches || s.Worst[0].State != driving.Jam {
		t.Fatalf("got %d of %d, the first %+v; want %d of more, a jam first",
			len(s.Worst), s.Known, s.Worst[0], roadmap.MaxStretches)
	}
	if c := served(t, m, "", nil); !c.Truncated || len(c.Features) != roadmap.MaxStretches {
		t.Errorf("got %d sent, truncated %t; want %d, true", len(c.Features), c.Truncated, roadmap.MaxStretches)
	}
	roadtest.Feed(&m.Map, jam.Drive("more", 8, 40, noon.Add(-30*time.Second), time.Second))
	if again := m.Within(road.World, noon.Add(time.Second)); again.At != s.At {
		t.Errorf("a second later: got the map of %v, want that of %v", again.At, s.At)
	}
	if again := m.Within(road.World, noon.Add(2*time.Second)); again.At == s.At {
		t.Errorf("two seconds later: got the map of %v, want it read again", again.At)
	}
}

func TestLines_EndAtTheEdgesOfTheMap(t *testing.T) {
	m := new(roadmap.Reader)
	roadtest.Feed(&m.Map, roadtest.Street{Latitude: -17, Longitude: 179.99, Heading: 90, Metres: 1500}.Learn(60, noon))
	roadtest.Feed(&m.Map, roadtest.Street{Latitude: 89.98, Longitude: 0, Heading: 0, Metres: 2000}.Learn(60, noon))
	c := served(t, m, "", nil)
	if len(c.Features) < 5 {
		t.Fatalf("got %d stretches, want 5 or more", len(c.Features))
	}
	for _, f := range c.Features {
		for _, p := range f.Geometry.Coordinates {
			if !(math.Abs(p[0]) <= 180) || !(math.Abs(p[1]) <= 90) {
				t.Errorf("%s: got the point %v, want it within 180 and 90 degrees", f.Properties.Stretch, p)
			}
		}
		if from, to := f.Geometry.Coordinates[0][0], f.Geometry.Coordinates[1][0]; f.Properties.Heading == 90 &&
			from > to {
			t.Errorf("%s: got a line from %g to %g, want none across the date line", f.Properties.Stretch, from, to)
		}
	}
}

func TestServe_Compresses(t *testing.T) {
	r := jammedStreet()
	plain, packed := httptest.NewRecorder(), httptest.NewRecorder()
	req := httptest.NewRequest("GET", "/", nil)
	roadmap.Serve(plain, req, r.Within(road.World, noon), roadmap.MaxStretches, nil)
	req.Header.Set("Accept-Encoding", "gzip, deflate")
	roadmap.Serve(packed, req, r.Within(road.World, noon), roadmap.MaxStretches, nil)
	z, err := gzip.NewReader(packed.Body)
	testkit.NoError(t, err)
	if text, err := io.ReadAll(z); err != nil || !bytes.Equal(text, plain.Body.Bytes()) ||
		packed.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("the unpacked answer: got %s, %v; want %s", text, err, plain.Body)
	}
}

func FuzzAsked(f *testing.F) {
	for _, q := range []string{
		"", "bbox=11,44,12,45&limit=100", "bbox=179,-18,-179,-16", "bbox=-180,-90,180,90", "bbox=11,45,12,44",
		"bbox=11,44,12", "bbox=11,44,12,45,6",
		"bbox=NaN,44,12,45", "bbox=11,44,12,91", "bbox=181,44,12,45", "bbox=", "bbox=1,2,3,4&bbox=1,2,3,4", "limit=0",
		"limit=20001", "limit=x", "limit=1&limit=2", "bbox=1e2,-0,+1e-2,0x1p3",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		b, limit, err := roadmap.Asked(q)
		if err != nil {
			if says := err.Error(); !strings.HasPrefix(says, "bbox is ") && !strings.HasPrefix(says, "limit is ") {
				t.Errorf("%q: got %q, want what bbox or limit is", text, says)
			}
			return
		}
		if !(math.Abs(b.West) <= 180 && math.Abs(b.East) <= 180 && b.South >= -90 && b.South <= b.North &&
			b.North <= 90) || limit < 1 || limit > roadmap.MaxStretches {
			t.Errorf("%q: got %+v, limit %d; want a box on earth, 1 to %d", text, b, limit, roadmap.MaxStretches)
		}
	})
}
