package console

import (
	"context"
	"fmt"
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

func putState(w *watchlist, id vehicle.ID, s vehicle.State) { w.Put(id, new(store.AnswerOf(&s))) }

func TestWatchlistIsBounded(t *testing.T) {
	w := newWatchlist()
	put := func(i int, s vehicle.State) { putState(w, vehicle.ID(fmt.Sprintf("car%d", i)), s) }
	for i := range maxWatched + 5 {
		put(i, jammed(time.Minute))
	}
	if len(w.jams) != maxWatched {
		t.Fatalf("%d are listed", len(w.jams))
	}
	put(0, vehicle.State{})
	put(maxWatched+1, jammed(time.Hour))
	if _, ok := w.jams["car0"]; ok || len(w.jams) != maxWatched {
		t.Errorf("%d are listed, one that has left: %t", len(w.jams), ok)
	}
	all, total := w.longest(w.jams, maxWatched, noon, 5*time.Minute)
	if total != maxWatched || len(all) != maxWatched || all[0].id != vehicle.ID(fmt.Sprintf("car%d", maxWatched+1)) {
		t.Errorf("%d are listed, and the first one is %+v", len(all), all[0])
	}
	if few, total := w.longest(w.jams, 3, noon, 5*time.Minute); total != maxWatched || !slices.Equal(few, all[:3]) {
		t.Errorf("got %+v of %d, want the first 3 of %d", few, total, maxWatched)
	}
	w.dropStale(noon.Add(time.Hour), 5*time.Minute)
	if len(w.jams) != 0 {
		t.Errorf("%d that have gone silent are still listed", len(w.jams))
	}
}

func TestAnomalySince(t *testing.T) {
	w := newWatchlist()
	var s vehicle.State
	for i := range 3 {
		x := vehicle.Sample{Time: signal.At(noon.Add(time.Duration(i) * time.Minute))}
		code, err := signal.ParseTroubleCode("P0121")
		testkit.NoError(t, err)
		testkit.NoError(t, x.SetCodes([]signal.TroubleCode{code}))
		s = vehicle.Observe(s, x)
		putState(w, "carA", s)
	}
	page, _ := w.longest(w.anomalies, maxWatched, noon.Add(2*time.Minute), 5*time.Minute)
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
		t.Errorf("%d points from %s on", len(all), all[0].At)
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
	if c.Levels[0].Value != 10 || len(c.Areas) != 3 || c.Empty || len(c.Axis.Ticks) != 5 ||
		c.Axis.Ticks[1].At.Sub(c.Axis.Ticks[0].At) != 15*time.Minute || c.Short {
		t.Errorf("got chart %+v, want levels to 10, 3 areas, ticks of 15 min", c)
	}
	if jam := c.Areas[0].Path; !strings.HasPrefix(jam,
		"M0.0 240.0L16.7 192.0L16.7 240.0L0.0 240.0ZM500.0 216.0L516.7 144.0") || strings.Count(jam, "Z") != 3 {
		t.Errorf("jam: %s", jam)
	}
	if normal := c.Areas[2].Path; !strings.HasPrefix(normal, "M0.0 0.0L16.7 0.0L16.7 120.0L0.0 240.0Z") {
		t.Errorf("normal: %s", normal)
	}
	if len(c.Rows) != 5 || c.Rows[0].Fresh() != 10 || c.Rows[1].Driving["jam"] != 4 {
		t.Errorf("got rows %+v, want 5 with the newest first", c.Rows)
	}
	if c := newFleetChart(nil, FleetCounts{At: noon}, 6); !c.Empty {
		t.Error("a chart of nothing is drawn")
	}
	// The chart of a new process begins at its first data.
	young := append([]FleetCounts{at(-1, 0, 0, 0)}, points...)
	c = newFleetChart(young, at(60, 1234, 0, 0), 24)
	if !c.Axis.From.Equal(noon.Add(-time.Hour)) || !c.Short || strings.HasPrefix(c.Areas[2].Path, "M0.0 240") {
		t.Errorf("a young process: %+v", c.Axis)
	}
	if !strings.HasPrefix(c.Read.Texts, "11:00 UTC: 10 normal, 0 slow, 0 in a jam|") ||
		!strings.HasSuffix(c.Read.Texts, "|12:00 UTC: 1,234 normal, 0 slow, 0 in a jam") {
		t.Errorf("under the pointer: %s", c.Read.Texts)
	}
}

// Memory of what browsers send is bounded.
func TestSessions_AreBounded(t *testing.T) {
	var s sessions
	for i := range 3 * maxFormsSent {
		s.first(strings.Repeat("long", i))
	}
	if n := len(s.sent); n != maxFormsSent {
		t.Errorf("got %d marks of forms, want %d", n, maxFormsSent)
	}
	for range maxStreams {
		if !s.takeStream(new(session)) {
			t.Fatal("a stream was refused below the limit")
		}
	}
	if s.takeStream(new(session)) {
		t.Error("there is no limit for the streams of all sessions")
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
