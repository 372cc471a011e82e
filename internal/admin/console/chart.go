package console

import (
	"fmt"
	"slices"
	"time"

	"carstate/internal/inwords"
	"carstate/internal/plot"
)

// fleetChart shows the number of vehicles in each driving state over time, as stacked areas.
type fleetChart struct {
	Hours  int
	Areas  []area // from the bottom up
	Levels []level
	Axis   axis
	Read   readouts
	Rows   []chartRow // the same data as a table, newest first
	Short  bool       // the data begin later than the requested period
	Empty  bool
	Choice []int // selectable numbers of hours
}

// area is the part of a chart for one driving state.
type area struct {
	Class, Name, Path string
	Occurs            bool // at least one car was in this state
}

// chartRow is one row of the table that a page shows for a chart.
type chartRow struct {
	At                time.Time
	Normal, Slow, Jam int
	Anomaly           int
}

// newFleetChart returns a chart of the fleet over time. The chart shows the given points, and after
// them one more point: the present counts, which are the parameter now. The parameter hours is the
// requested length of the chart, in hours; the page shows it as the selected choice. The chart
// begins with the first point that has counts. So if the points begin later than requested, the
// chart is shorter.
func newFleetChart(points []point, now FleetCounts, hours int) fleetChart {
	c := fleetChart{Hours: hours, Choice: []int{1, 6, 24}}
	points = append(points, pointOf(now))
	// The chart begins with the first point that has counts. Before that point, this process had
	// not counted the fleet.
	for len(points) > 1 && points[0].normal+points[0].slow+points[0].jam+points[0].other == 0 {
		points = points[1:]
	}
	c.Axis = newAxis(points[0].at, now.At)
	c.Short = now.At.Sub(c.Axis.From) < time.Duration(hours)*time.Hour-2*historyStep
	most := 0
	for _, p := range points {
		most = max(most, int(p.normal+p.slow+p.jam))
	}
	scale := plot.NewScale(0, float64(max(4, most)), chartHeight, 0, false)
	c.Empty, c.Levels = most == 0 || len(points) < 3, levelsOf(&scale)
	at := func(p point, n int32) plot.Point { return plot.Point{X: c.Axis.x(p.at), Y: scale.At(float64(n))} }
	c.Read = newReadouts(len(points), func(i int) (float64, string) {
		p := points[i]
		return c.Axis.x(p.at), fmt.Sprintf("%s UTC: %s normal, %s slow, %s in a jam", p.at.UTC().Format("15:04"),
			inwords.Count(p.normal), inwords.Count(p.slow), inwords.Count(p.jam))
	})
	below := func(point) int32 { return 0 }
	for _, a := range []struct {
		class, name string
		value       func(point) int32
	}{
		{"jam", "Traffic jam", func(p point) int32 { return p.jam }},
		{"slow", "Slow driving", func(p point) int32 { return p.slow }},
		{"normal", "Normal driving", func(p point) int32 { return p.normal }},
	} {
		under := below
		over := func(p point) int32 { return under(p) + a.value(p) }
		path := ribbon(points,
			func(p point) plot.Point { return at(p, over(p)) }, func(p point) plot.Point { return at(p, under(p)) })
		occurs := slices.ContainsFunc(points, func(p point) bool { return a.value(p) > 0 })
		c.Areas = append(c.Areas, area{a.class, a.name, path, occurs})
		below = over
	}
	const rows = 12
	for i := range min(rows, len(points)) {
		p := points[len(points)-1-i*(len(points)-1)/max(1, min(rows, len(points))-1)]
		c.Rows = append(c.Rows, chartRow{p.at, int(p.normal), int(p.slow), int(p.jam), int(p.anomaly)})
	}
	return c
}

// ribbon returns the SVG path around the area between two lines of a chart. The functions over and
// under return the points of the upper and the lower line. Where two successive points are three
// minutes or more apart, the path is interrupted. If there are no points, the path is "".
func ribbon(points []point, over, under func(point) plot.Point) (path string) {
	for start := 0; start < len(points); {
		end := start + 1
		for end < len(points) && points[end].at.Sub(points[end-1].at) < 3*historyStep {
			end++
		}
		var ring []plot.Point
		for _, p := range points[start:end] {
			ring = append(ring, over(p))
		}
		for i := end - 1; i >= start; i-- {
			ring = append(ring, under(points[i]))
		}
		path += plot.Curve(ring, 0) + "Z"
		start = end
	}
	return path
}
