package console

import (
	"fmt"
	"slices"
	"time"

	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/plot"
)

type fleetChart struct {
	chart
	Hours  int
	Areas  []area        // from the bottom up
	Rows   []FleetCounts // newest first
	Short  bool          // the chart begins later than requested
	Empty  bool
	Choice []int // hours
}

type area struct {
	Class, Path string
	Occurs      bool
}

func newFleetChart(points []FleetCounts, now FleetCounts, hours int) fleetChart {
	points = append(points, now)
	// Points without counts are from before this process had counted the fleet.
	for len(points) > 1 && points[0].Vehicles == 0 {
		points = points[1:]
	}
	most := 0
	for _, p := range points {
		most = max(most, p.Fresh())
	}
	c := fleetChart{chart: newChart(points[0].At, now.At, float64(max(4, most))), Hours: hours, Choice: chartHours}
	c.Short = now.At.Sub(c.From) < time.Duration(hours)*time.Hour-2*historyStep
	c.Empty = most == 0 || len(points) < 3
	c.say(len(points), "15:04", func(i int) (time.Time, string) {
		p := points[i]
		return p.At, fmt.Sprintf("%s normal, %s slow, %s in a jam", inwords.Count(p.Driving["normal"]),
			inwords.Count(p.Driving["slow"]), inwords.Count(p.Driving["jam"]))
	})
	heights := make([]int, len(points)) // of the areas so far
	line := func() (line []plot.Point) {
		for i, p := range points {
			gap := i > 0 && p.At.Sub(points[i-1].At) >= 3*historyStep
			line = append(line, c.point(p.At, float64(heights[i]), gap))
		}
		return line
	}
	under := line()
	for _, class := range []string{"jam", "slow", "normal"} {
		occurs := false
		for i, p := range points {
			heights[i] += p.Driving[class]
			occurs = occurs || p.Driving[class] > 0
		}
		over := line()
		c.Areas = append(c.Areas, area{class, plot.Between(over, under, 0), occurs})
		under = over
	}
	const rows = 12
	for _, i := range slices.Backward(sampled(len(points), rows)) {
		c.Rows = append(c.Rows, points[i])
	}
	return c
}
