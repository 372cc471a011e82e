package console

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"example.org/carstate/internal/admin/throughput"
	"example.org/carstate/internal/vehicle"
)

const fewListed = 8

type fleetView struct {
	FleetCounts
	Root      string // prefix of the session's paths
	Chart     fleetChart
	Jams      listView
	Anomalies listView
	Flow      flowView
}

// listView shows the vehicles whose jam, or whose anomaly, began first.
type listView struct {
	Root  string
	Name  string // "jam" or "anomaly"
	Rows  []listRow
	Total int // of all such vehicles
}

func (l listView) More() int { return max(0, l.Total-len(l.Rows)) }

type listRow struct {
	ID     vehicle.ID
	Since  time.Time
	Reason string
}

type flowView struct {
	throughput.Rates
	throughput.Figures
	Streams         []bar
	Ready, Writable error
}

type bar struct {
	Name    string
	Count   int             // of vehicles
	Fill    throughput.Fill // of a stream
	Percent float64
}

func (c *Console) fleetPage(w http.ResponseWriter, r *http.Request, s *session) {
	hours := c.hours(r)
	c.show(w, s, http.StatusOK, "fleet", page{
		Title: "Fleet", Section: "fleet", Live: "/live/fleet?hours=" + strconv.Itoa(hours),
		Data: c.fleetView(r.Context(), s.root, hours),
	})
}

func (c *Console) fleetLive(w http.ResponseWriter, r *http.Request, s *session) {
	hours := c.hours(r)
	c.serveLive(w, r, s, func(ctx context.Context) (parts, error) {
		v := c.fleetView(ctx, s.root, hours)
		return c.parts("fleet", v, "now", "chart", "jam", "anomaly", "flow", "refused", "ages", "engine")
	})
}

var chartHours = []int{1, 6, 24}

// hours returns the hours in the URL if selectable, or 6, or 1 in the first hour of the process.
func (c *Console) hours(r *http.Request) int {
	if n, err := strconv.Atoi(r.URL.Query().Get("hours")); err == nil && slices.Contains(chartHours, n) {
		return n
	}
	if c.Now().Sub(c.Monitor.began) > time.Hour {
		return 6
	}
	return 1
}

func (c *Console) fleetView(ctx context.Context, root string, hours int) fleetView {
	v := fleetView{FleetCounts: c.Monitor.Counts(), Root: root}
	v.Chart = newFleetChart(c.Monitor.since(v.At.Add(-time.Duration(hours)*time.Hour)), v.FleetCounts, hours)
	ctx, cancel := context.WithTimeout(ctx, scanTime) // a node that folds may hang
	defer cancel()
	v.Jams = c.listView(ctx, root, "jam", v.FleetCounts)
	v.Anomalies = c.listView(ctx, root, "anomaly", v.FleetCounts)
	v.Flow = c.flow()
	return v
}

func (c *Console) listView(ctx context.Context, root, name string, s FleetCounts) listView {
	m, l := c.Monitor, listView{Root: root, Name: name}
	watched, counted := m.jams, s.Driving["jam"]
	if name == "anomaly" {
		watched, counted = m.anomalies, s.Throttle["anomaly"]
	}
	rows, total := m.longest(watched, fewListed, m.now(), m.maxAge)
	if l.Total = total; total == maxWatched { // the list is full, so the counts know better
		l.Total = max(total, counted)
	}
	for _, row := range rows {
		if made, ok := c.listRow(ctx, name, row); ok {
			l.Rows = append(l.Rows, made)
		} else {
			l.Total--
		}
	}
	return l
}

// ok is false if the vehicle was forgotten just now, because then no page may name it.
func (c *Console) listRow(ctx context.Context, list string, x watched) (row listRow, ok bool) {
	s, ok, err := c.Ops.State(ctx, x.id)
	reason := s.ExplainThrottle().Text
	switch {
	case err != nil:
		reason = "its state cannot be read at present"
	case !ok:
		return listRow{}, false
	case list == "jam":
		reason = s.ExplainDriving().Text
	}
	return listRow{x.id, x.since.Time(), reason}, true
}

func (c *Console) flow() flowView {
	now, r := c.Monitor.flow()
	v := flowView{Rates: r, Figures: now, Ready: c.Ready(), Writable: c.Writable()}
	for _, name := range slices.Sorted(maps.Keys(now.Streams)) {
		// The engine of one machine gives the size 0 until a table of the stream is on the disk.
		if s := now.Streams[name]; s.Bytes > 0 && s.Limit > 0 {
			v.Streams = append(v.Streams, bar{Name: name, Fill: s, Percent: 100 * s.Bytes / s.Limit})
		}
	}
	return v
}

func (s FleetCounts) AgeBars() (bars []bar) {
	names := [...]string{"up to 10 s", "up to 1 min", "up to 5 min", "up to 1 h", "up to 1 day", "up to 7 days",
		"older"}
	for i, n := range s.Ages {
		bars = append(bars, bar{Name: names[i], Count: n, Percent: 100 * float64(n) / float64(max(1, s.Vehicles))})
	}
	return bars
}
