package signal

import "math"

type Explanation struct {
	Rule    string
	Version int
	Text    string
	Facts   []Fact
}

type Fact struct {
	Name  string
	Value float64
	Unit  string
	// NaN if there is none
	Threshold float64
	// Limit names the side of Threshold: "anomaly from" (or above), "jam up to" (or below), or "".
	Limit string
	Time  UnixMilli // of the newest reading behind the value
}

func NewFact(name string, value float64, unit string, threshold float64, limit string, t UnixMilli) Fact {
	return Fact{name, value, unit, threshold, limit, t}
}

func Rounded(measure float32) float64 { return max(0, math.Round(1000*float64(measure))/1000) }
