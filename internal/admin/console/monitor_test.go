package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func jammed(since time.Duration) (s vehicle.State) {
	s.Time, s.Pace = signal.At(noon), driving.Jam
	s.Latest[signal.Speed] = signal.Reading{Value: 3, Time: s.Time}
	s.Traffic.At, s.Traffic.Changed, s.Traffic.Share = s.Time, s.Time.Add(-since), 0.2
	return s
}

func TestWatchlistIsBounded(t *testing.T) {
	now := noon
	m := NewMonitor(nil, nil, 5*time.Minute, func() time.Time { return now })
	put := func(i int, s vehicle.State) { m.Put(vehicle.ID(fmt.Sprintf("car%d", i)), new(store.AnswerOf(&s))) }
	for i := range maxWatched + 5 {
		put(i, jammed(time.Minute))
	}
	if len(m.jams) != maxWatched {
		t.Fatalf("the jams: got %d, want %d", len(m.jams), maxWatched)
	}
	put(0, vehicle.State{})
	put(maxWatched+1, jammed(time.Hour))
	if _, ok := m.jams["car0"]; ok || len(m.jams) != maxWatched {
		t.Errorf("the jams: got %d, with car0 %t; want %d without car0", len(m.jams), ok, maxWatched)
	}
	all := m.longest(m.jams, maxWatched)
	if len(all) != maxWatched || all[0].id != vehicle.ID(fmt.Sprintf("car%d", maxWatched+1)) {
		t.Errorf("the longest: got %d, the first %+v; want %d, car%d first", len(all), all[0], maxWatched, maxWatched+1)
	}
	if few := m.longest(m.jams, 3); !slices.Equal(few, all[:3]) {
		t.Errorf("got %+v, want the first 3 of %+v", few, all[:3])
	}
	now = noon.Add(time.Hour)
	m.dropStale()
	if len(m.jams) != 0 {
		t.Errorf("the jams that have gone silent: got %d, want 0", len(m.jams))
	}
}

func TestAnomalySince(t *testing.T) {
	m := NewMonitor(nil, nil, 5*time.Minute, func() time.Time { return noon.Add(2 * time.Minute) })
	var s vehicle.State
	for i := range 3 {
		x := vehicle.Sample{Time: signal.At(noon.Add(time.Duration(i) * time.Minute))}
		testkit.NoError(t, x.SetCodes([]signal.TroubleCode{{'P', '0', '1', '2', '1'}}))
		s = vehicle.Observe(s, x)
		m.Put("carA", new(store.AnswerOf(&s)))
	}
	page := m.longest(m.anomalies, maxWatched)
	if len(page) != 1 || page[0].since != signal.At(noon) || page[0].read != signal.At(noon.Add(2*time.Minute)) {
		t.Errorf("got %+v, want one anomaly since %v", page, noon)
	}
}

func TestMonitor_KeepsADay(t *testing.T) {
	table := fleet.New()
	table.Put("carA", fleet.Answer{Driving: vehicle.DrivingVerdict{State: driving.Normal, Time: signal.At(noon)}})
	m := NewMonitor(table, prometheus.NewRegistry(), time.Minute, func() time.Time { return noon })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.Run(ctx)
	if points := m.since(noon); len(points) != 1 || points[0].Driving["normal"] != 1 {
		t.Errorf("got points %+v, want one with one normal car", points)
	}
	for i := range historyPoints + 10 {
		m.note(FleetCounts{noon.Add(time.Duration(i) * time.Minute), fleet.Counts{Vehicles: 10}})
	}
	all := m.since(time.Time{})
	if len(all) != historyPoints || !all[0].At.Equal(noon.Add(10*time.Minute)) || all[0].Vehicles != 10 {
		t.Errorf("the history: got %d points from %s, want %d from 12:10 on", len(all), all[0].At, historyPoints)
	}
	if points := m.since(noon.Add((historyPoints + 7) * time.Minute)); len(points) != 3 ||
		!points[0].At.Before(points[2].At) {
		t.Errorf("got %+v, want the last 3 points in order", points)
	}
}

func TestFleetChart(t *testing.T) {
	at := func(minute int, normal, slow, jam int) FleetCounts {
		return FleetCounts{noon.Add(time.Duration(minute-60) * time.Minute), fleet.Counts{
			Vehicles: normal + slow + jam, Driving: map[string]int{"normal": normal, "slow": slow, "jam": jam}}}
	}
	points := []FleetCounts{at(0, 10, 0, 0), at(1, 5, 3, 2), at(30, 1, 1, 1), at(31, 0, 0, 4)}
	c := newFleetChart(points, at(60, 10, 0, 0), 1)
	if c.Levels[0].Value != 10 || len(c.Areas) != 3 || c.Empty || len(c.Ticks) != 5 ||
		c.Ticks[1].At.Sub(c.Ticks[0].At) != 15*time.Minute || c.Short {
		t.Errorf("got chart %+v, want levels to 10, 3 areas, ticks of 15 min", c)
	}
	if jam := c.Areas[0].Path; !strings.HasPrefix(jam,
		"M0.0 240.0L16.7 192.0L16.7 240.0L0.0 240.0ZM500.0 216.0L516.7 144.0") || strings.Count(jam, "Z") != 3 {
		t.Errorf("the area of jams: got %s, want 3 parts from M0.0 240.0L16.7 192.0 on", jam)
	}
	if normal := c.Areas[2].Path; !strings.HasPrefix(normal, "M0.0 0.0L16.7 0.0L16.7 120.0L0.0 240.0Z") {
		t.Errorf("the area of normal cars: got %s, want it from M0.0 0.0L16.7 0.0L16.7 120.0 on", normal)
	}
	if len(c.Rows) != 5 || c.Rows[0].Fresh() != 10 || c.Rows[1].Driving["jam"] != 4 {
		t.Errorf("got rows %+v, want 5 with the newest first", c.Rows)
	}
	if c := newFleetChart(nil, FleetCounts{At: noon}, 6); !c.Empty {
		t.Errorf("a chart of nothing: got %+v, want it empty", c)
	}
	// The chart of a new process begins at its first data.
	young := append([]FleetCounts{at(-1, 0, 0, 0)}, points...)
	c = newFleetChart(young, at(60, 1234, 0, 0), 24)
	if !c.From.Equal(noon.Add(-time.Hour)) || !c.Short || strings.HasPrefix(c.Areas[2].Path, "M0.0 240") {
		t.Errorf("a young process: got %+v, want a short chart from 11:00 on", c.chart)
	}
	if !strings.HasPrefix(c.Texts, "11:00 UTC: 10 normal, 0 slow, 0 in a jam|") ||
		!strings.HasSuffix(c.Texts, "|12:00 UTC: 1,234 normal, 0 slow, 0 in a jam") {
		t.Errorf("under the pointer: got %s, want 10 normal at 11:00 to 1,234 normal at 12:00", c.Texts)
	}
}

func TestSessions_AreBounded(t *testing.T) {
	var s sessions
	for i := range 3 * maxFormsSent {
		s.first(strings.Repeat("long", i))
	}
	if n := len(s.sent); n != maxFormsSent {
		t.Errorf("got %d marks of forms, want %d", n, maxFormsSent)
	}
	c := New(Config{Registry: prometheus.NewRegistry()})
	for range maxStreams {
		c.streams <- struct{}{}
	}
	w, one := httptest.NewRecorder(), &session{streams: make(chan struct{}, 1)}
	c.serveLive(w, httptest.NewRequest("GET", "/live/fleet", nil), one, "", nil)
	if w.Code != http.StatusServiceUnavailable || len(one.streams) != 0 {
		t.Errorf("got %d and %d streams of the session, want 503 and 0", w.Code, len(one.streams))
	}
}

func TestStrip_WaitsForOthers(t *testing.T) {
	c := New(Config{Registry: prometheus.NewRegistry()})
	c.strips <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := c.strip(ctx, "carA"); !strings.Contains(text, "not read, because others are being read") {
		t.Errorf("got %s, %v, want that others are being read", text, err)
	}
}

func TestCurve_ShowsFoldedSamples(t *testing.T) {
	var samples []vehicle.Sample
	for i := range 600 {
		x := vehicle.Sample{Vehicle: "carA", Time: signal.At(noon.Add(time.Duration(i-600) * time.Second))}
		kmh := 50.0
		if i > 120 {
			kmh = float64(i % 3) // a jam
		}
		testkit.NoError(t, x.Set(signal.Speed, kmh))
		samples = append(samples, x)
	}
	recent := func(_ context.Context, id vehicle.ID, _ int) (store.Recent, error) {
		if id == "broken" {
			return store.Recent{}, errors.New("no engine")
		}
		return store.Recent{Samples: samples, Since: noon.Add(-time.Hour), All: true}, nil
	}
	con := New(Config{Recent: recent, Registry: prometheus.NewRegistry()})
	v := con.curve(t.Context(), "carA", &vehicle.State{}).view()
	if v.Points != 600 || !v.All || v.Most != 50 || v.Levels[0].Value != 60 || len(v.Bands) < 2 ||
		v.Bands[0].Class != "normal" || v.Bands[len(v.Bands)-1].Class != "jam" {
		t.Fatalf("got %+v, want 600 points that begin normal and end in a jam", v)
	}
	end := 0.
	for _, b := range v.Bands {
		if b.X != end {
			t.Errorf("the bands: got %+v, want no gap after %v", v.Bands, end)
		}
		end = b.X + b.Width
	}
	if end != chartWidth {
		t.Errorf("the bands: got %+v, want them until %v", v.Bands, chartWidth)
	}
	if v.Spells[0].Class != "jam" || !v.Spells[0].Till.Equal(noon.Add(-time.Second)) {
		t.Errorf("got spells %+v, want the jam first", v.Spells)
	}
	if !strings.HasPrefix(v.Line, "M0.0 40.0L") || strings.Count(v.Line, "M") != 1 {
		t.Errorf("the line: got %.40s…, want one part from M0.0 40.0 on", v.Line)
	}
	if v := con.curve(t.Context(), "broken", &vehicle.State{}).view(); !v.Failed || v.Points != 0 {
		t.Errorf("got %+v, want a failed curve without points", v)
	}
}

func TestCurveGapsAndBounds(t *testing.T) {
	point := func(second int, kmh float32) reading[speed] {
		return reading[speed]{signal.At(noon.Add(time.Duration(second) * time.Second)), speed{kmh, "normal"}}
	}
	k := &curve{speeds: trail[speed]{point(0, 10), point(1, 10), point(600, 10), point(601, 10)}}
	if v := k.view(); strings.Count(v.Line, "M") != 2 || len(v.Bands) != 2 ||
		v.Bands[0].Till.After(noon.Add(time.Second)) {
		t.Errorf("got %+v, want two lines and two bands", v)
	}
	k = &curve{speeds: trail[speed]{point(0, 10), point(7200, 10), point(7201, 11)}}
	if v := k.view(); v.Points != 2 {
		t.Errorf("more than an hour: got %+v, want the last 2 points", v)
	}
	for _, points := range []trail[speed]{nil, {point(0, 1)}, {point(0, 1), point(7200, 2)}} {
		if v := (&curve{speeds: points}).view(); v.Points != 0 || v.Line != "" {
			t.Errorf("got %+v, want nothing to draw", v)
		}
	}
	var many trail[speed]
	for i := range maxPoints {
		many.add(signal.At(noon.Add(time.Duration(i)*curveSpan/maxPoints)), speed{float32(i % 97), "normal"})
	}
	if v := (&curve{speeds: many}).view(); v.Points != maxPoints || strings.Count(v.Line, "L") > 2*drawnPieces ||
		!strings.Contains(v.Line, " 240.0") {
		t.Errorf("got %d points in %.40s…, want %d in %d pieces at most", v.Points, v.Line, maxPoints, 2*drawnPieces)
	}
	k = new(curve)
	for i := range maxPoints + 10 {
		var s vehicle.State
		s.Latest[signal.OBDSpeed] = signal.Reading{Value: 1, Time: signal.At(noon).Add(time.Duration(i) * time.Second)}
		k.note(&s)
		k.note(&s) // the same state again
	}
	if len(k.speeds) > maxPoints || len(k.speeds) < maxPoints/2 || k.speeds[0].at >= k.speeds[1].at {
		t.Errorf("the kept points: got %d, want %d to %d in order", len(k.speeds), maxPoints/2, maxPoints)
	}
}

func FuzzForms(f *testing.F) {
	f.Add("A, B\nC", "/tokens")
	f.Add("a-b\x00", "//evil")
	f.Fuzz(func(t *testing.T, list, next string) {
		v, err := parseVehicles(list)
		switch {
		case err != nil && strings.ContainsAny(err.Error(), "\n\r"):
			t.Errorf("the list %q: got the error %q, want one line", list, err)
		case err == nil && (v.All() || v.Len() == 0):
			t.Errorf("the list %q: got %d vehicles, all %t; want some", list, v.Len(), v.All())
		}
		if p := localPath(next); !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") ||
			strings.ContainsAny(p, "\\:?#%\r\n") {
			t.Errorf("the path %q: got %q, want a path of this server", next, p)
		}
	})
}
