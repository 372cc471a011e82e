package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"example.org/carstate/internal/admin/throughput"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const fewListed = 8

type fleetView struct {
	FleetCounts
	Root      string // prefix of the session's paths
	Chart     fleetChart
	Jams      listView
	Anomalies listView

	Rates           throughput.Rates
	Figures         throughput.Figures
	Ready, Writable error
}

type listView struct {
	Root  string
	Rows  []listRow
	Total int // number of all such vehicles, counted a moment before Rows
}

func (l listView) More() int { return max(0, l.Total-len(l.Rows)) }

type listRow struct {
	ID     vehicle.ID
	Since  time.Time
	Reason string
}

type bar struct {
	Name    string
	Count   int
	Percent float64
}

var chartHours = []int{1, 6, 24}

func hoursOf(r *http.Request) int {
	n, _ := strconv.Atoi(r.URL.Query().Get("hours"))
	if slices.Contains(chartHours, n) {
		return n
	}
	return 6
}

func (c *Console) fleetPage(ctx context.Context, r *http.Request, s *session) (page, error) {
	hours := hoursOf(r)
	v := fleetView{FleetCounts: c.Monitor.Counts(), Root: s.root}
	v.Chart = newFleetChart(c.Monitor.since(v.At.Add(-time.Duration(hours)*time.Hour)), v.FleetCounts, hours)
	ctx, cancel := context.WithTimeout(ctx, scanTime) // Ops.State may ask another node, which may hang
	defer cancel()
	m := c.Monitor
	v.Jams = c.listView(ctx, s.root, m.jams, v.Driving["jam"], (*vehicle.State).ExplainDriving)
	v.Anomalies = c.listView(ctx, s.root, m.anomalies, v.Throttle["anomaly"], (*vehicle.State).ExplainThrottle)
	v.Figures, v.Rates = m.flow()
	v.Ready, v.Writable = c.Ready(), c.Writable()
	return page{Title: "Fleet", Section: "fleet", Live: "/live/fleet?hours=" + strconv.Itoa(hours), Data: v}, nil
}

func (c *Console) listView(
	ctx context.Context, root string, list map[vehicle.ID]watched, total int,
	explain func(*vehicle.State) signal.Explanation,
) listView {
	l := listView{Root: root, Total: total}
	for _, x := range c.Monitor.longest(list, fewListed) {
		s, ok, err := c.Ops.State(ctx, x.id)
		reason := explain(&s).Text
		if err != nil {
			reason = "its state cannot be read at present"
		} else if !ok { // the vehicle was forgotten just now, so no page may name it
			continue
		}
		l.Rows = append(l.Rows, listRow{x.id, x.since.Time(), reason})
	}
	return l
}

func (s FleetCounts) AgeBars() (bars []bar) {
	names := [...]string{"up to 10 s", "up to 1 min", "up to 5 min", "up to 1 h", "up to 1 day", "up to 7 days",
		"older"}
	for i, n := range s.Ages {
		bars = append(bars, bar{names[i], n, 100 * float64(n) / float64(max(1, s.Vehicles))})
	}
	return bars
}
