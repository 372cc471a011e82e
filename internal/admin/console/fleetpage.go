package console

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"carstate/internal/inwords"
	"carstate/internal/store/codec"
)

// How many vehicles a list of the page shows, and how many records a page of a list.
const (
	fewListed = 8
	listed    = 25
)

// fleetView is the page of the fleet.
type fleetView struct {
	FleetCounts
	Root      string // of the session's paths
	Driving   int    // answered by a driving state
	Chart     fleetChart
	Jams      listView
	Anomalies listView
	Flow      flowView
	AgeBars   []bar
	Empty     bool // nothing has ever reported
}

// listView is the latest vehicles in a jam or with an anomaly.
type listView struct {
	Root  string // of the session's paths
	Name  string // "jam" or "anomaly"
	Rows  []listRow
	Total int // there are
}

// More is how many are not among the rows.
func (l listView) More() int { return max(0, l.Total-len(l.Rows)) }

// listRow is one vehicle of a list.
type listRow struct {
	Watched
	Reason string
}

// flowView is what the node does.
type flowView struct {
	Known            bool // there was time to count
	Over             string
	Samples, Queries float64 // a second
	P99              string
	SamplesRefused   []reason
	QueriesRefused   []reason
	Streams          []streamBar
	FeedAge          string
	Backlog          string
	Ready, Writable  string // why not; "": it is
}

// bar is one bar of a chart.
type bar struct {
	Name    string
	Count   int
	Percent float64
}

// streamBar is how full a stream is.
type streamBar struct {
	Name         string
	Bytes, Limit float64
	Percent      float64
	Full         bool // nearly
}

func (c *Console) fleetPage(w http.ResponseWriter, r *http.Request, s *session) {
	hours := c.hours(r)
	c.showTo(w, s, http.StatusOK, "fleet", page{
		Title: "Fleet", Section: "fleet", Live: "/live/fleet?hours=" + strconv.Itoa(hours),
		Data: c.fleetView(r.Context(), s.root, hours),
	})
}

func (c *Console) fleetLive(w http.ResponseWriter, r *http.Request) {
	hours := c.hours(r)
	c.keepUp(w, r, func(ctx context.Context) (parts, error) {
		v := c.fleetView(ctx, rootOf(r), hours)
		return c.parts("fleet", v, "now", "chart", "jam", "anomaly", "flow", "refused", "ages", "engine")
	})
}

// hours reads how far back the chart goes: as far as there are figures, unless
// somebody chose.
func (c *Console) hours(r *http.Request) int {
	if n, err := strconv.Atoi(r.URL.Query().Get("hours")); err == nil && slices.Contains([]int{1, 6, 24}, n) {
		return n
	}
	if c.Now().Sub(c.Monitor.began) > time.Hour {
		return 6
	}
	return 1
}

func (c *Console) fleetView(ctx context.Context, root string, hours int) fleetView {
	v := fleetView{FleetCounts: c.Monitor.counts(), Root: root}
	v.Driving = v.Normal + v.Slow + v.Jam
	v.Empty = v.Vehicles == 0
	v.Chart = newFleetChart(c.Monitor.history.since(v.At.Add(-time.Duration(hours)*time.Hour)), v.FleetCounts, hours)
	v.Jams = c.list(ctx, root, "jam", v.FleetCounts)
	v.Anomalies = c.list(ctx, root, "anomaly", v.FleetCounts)
	v.Flow = c.flow()
	v.AgeBars = ageBars(v.FleetCounts)
	return v
}

// list makes one of the two lists.
func (c *Console) list(ctx context.Context, root, name string, s FleetCounts) listView {
	l := listView{Root: root, Name: name}
	rows, anomalies := c.Monitor.lists()
	counted := s.Jam
	if name == "anomaly" {
		rows, counted = anomalies, s.Anomaly
	}
	l.Total = len(rows)
	if l.Total == maxWatched { // only the survey knows how many there are
		l.Total = max(l.Total, counted)
	}
	for _, row := range rows[:min(fewListed, len(rows))] {
		if made, ok := c.listRow(ctx, name, row); ok {
			l.Rows = append(l.Rows, made)
		} else {
			l.Total--
		}
	}
	return l
}

// listRow says why a vehicle is on a list; not ok: it was forgotten a moment ago, and
// no page may name it.
func (c *Console) listRow(ctx context.Context, list string, x Watched) (row listRow, ok bool) {
	s, ok, err := c.Ops.State(ctx, x.ID)
	since, reason := s.Traffic.Changed, ""
	switch {
	case err != nil:
		reason = "its state cannot be read at present"
	case !ok:
		return listRow{}, false
	case list == "jam":
		reason = s.ExplainDriving().Text
	default:
		since, reason = s.ThrottleMemory.Alarm.Since, s.ExplainThrottle().Text
	}
	if x.Since.UnixMilli() == 0 {
		// Read at the start. A trouble code's time no state tells: it is as
		// old as the last list at least.
		x.Since = x.Read
		if since != 0 {
			x.Since = since.Time()
		}
	}
	return listRow{x, reason}, true
}

func (c *Console) flow() flowView {
	now, r := c.Monitor.flow()
	v := flowView{
		Known: r.over > 0, Over: inwords.Duration(r.over.Round(time.Second)), Samples: r.samples, Queries: r.queries,
		SamplesRefused: r.samplesRefused, QueriesRefused: r.queriesRefused, FeedAge: "not known yet",
		Backlog: inwords.Seconds(now.backlog),
	}
	switch {
	case r.p99 == 0:
		v.P99 = "–"
	case r.beyond:
		v.P99 = "over " + inwords.Seconds(r.p99)
	default:
		v.P99 = inwords.Seconds(r.p99)
	}
	if now.feedAge >= 0 {
		v.FeedAge = inwords.Seconds(now.feedAge)
	}
	for _, name := range []string{codec.Telemetry, codec.States, codec.Tokens, codec.Sources, codec.Audit, codec.Roads} {
		if s, ok := now.streams[name]; ok && s.limit > 0 {
			percent := 100 * s.bytes / s.limit
			v.Streams = append(v.Streams, streamBar{name, s.bytes, s.limit, percent, percent >= 80})
		}
	}
	if err := c.Ready(); err != nil {
		v.Ready = err.Error()
	}
	if err := c.Writable(); err != nil {
		v.Writable = err.Error()
	}
	return v
}

func ageBars(s FleetCounts) (bars []bar) {
	names := [...]string{"up to 10 s", "up to 1 min", "up to 5 min", "up to 1 h", "up to 1 d", "up to 7 d", "older"}
	for i, n := range s.Ages {
		bars = append(bars, bar{names[i], n, 100 * float64(n) / float64(max(1, s.Vehicles))})
	}
	return bars
}

// parts makes the named pieces of a page.
func (c *Console) parts(name string, data any, which ...string) (parts, error) {
	made := make(parts)
	for _, piece := range which {
		var b bytes.Buffer
		if err := c.pages[name].ExecuteTemplate(&b, "live-"+piece, data); err != nil {
			return nil, err
		}
		made[piece] = b.String()
	}
	return made, nil
}
