package console

import (
	"fmt"
	"time"

	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/plot"
)

type fleetChart struct {
	Hours  int
	Areas  []area // from the bottom up
	Levels []level
	Axis   axis
	Read   readouts
	Rows   []FleetCounts // newest first
	Short  bool          // it begins later than requested
	Empty  bool
	Choice []int // hours
}

type area struct {
	Class, Path string
	Occurs      bool
}

// newFleetChart interrupts the areas between points that are three minutes or more apart.
func newFleetChart(points []FleetCounts, now FleetCounts, hours int) fleetChart {
	c := fleetChart{Hours: hours, Choice: []int{1, 6, 24}}
	points = append(points, now)
	// Points without counts are from before this process had counted the fleet.
	for len(points) > 1 && points[0].Vehicles == 0 {
		points = points[1:]
	}
	c.Axis = newAxis(points[0].At, now.At)
	c.Short = now.At.Sub(c.Axis.From) < time.Duration(hours)*time.Hour-2*historyStep
	most := 0
	for _, p := range points {
		most = max(most, p.Fresh())
	}
	scale := plot.NewScale(float64(max(4, most)), chartHeight, 0)
	c.Empty, c.Levels = most == 0 || len(points) < 3, levelsOf(&scale)
	c.Read = newReadouts(len(points), func(i int) (float64, string) {
		p := points[i]
		return c.Axis.x(p.At), fmt.Sprintf("%s UTC: %s normal, %s slow, %s in a jam", p.At.UTC().Format("15:04"),
			inwords.Count(p.Driving["normal"]), inwords.Count(p.Driving["slow"]), inwords.Count(p.Driving["jam"]))
	})
	heights := make([]int, len(points)) // of the areas so far
	line := func() (line []plot.Point) {
		for i, p := range points {
			gap := i > 0 && p.At.Sub(points[i-1].At) >= 3*historyStep
			line = append(line, plot.Point{X: c.Axis.x(p.At), Y: scale.At(float64(heights[i])), Gap: gap})
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
	for i := range min(rows, len(points)) {
		c.Rows = append(c.Rows, points[len(points)-1-i*(len(points)-1)/max(1, min(rows, len(points))-1)])
	}
	return c
}
