package vehicle

import "math"

type Explanation struct {
	Rule string
	// Version changes whenever the same readings may lead to another verdict.
	Version int
	Text    string
	Facts   []Fact
}

type Fact struct {
	Name  string
	Value float64
	Unit  string
	// Threshold is what Value was compared with; NaN if there is none.
	Threshold float64
	// Limit says what a value on one side of the threshold means: "anomaly from" at or above it,
	// "jam up to" at or below it; "" if there is no threshold.
	Limit string
	// Time is when the newest reading behind the value was read.
	Time UnixMilli
}

func rounded(measure float32) float64 { return max(0, math.Round(1000*float64(measure))/1000) }
