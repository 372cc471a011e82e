package vehicle

import "math"

// Explanation says why a verdict was given.
type Explanation struct {
	// Rule is the name of the rule that decided.
	Rule string
	// Version is that of the rule: it changes whenever the same readings may
	// lead to another verdict.
	Version int
	// Text says it in one sentence, for people.
	Text string
	// Facts are what the rule looked at.
	Facts []Fact
}

// Fact is one reading or measure that a rule looked at.
type Fact struct {
	Name  string
	Value float64
	Unit  string
	// Threshold is what Value was compared with; NaN: with nothing.
	Threshold float64
	// Limit says what the threshold means and on which side, such as "anomaly from"; "": nothing.
	Limit string
	// Time is when it was read, or for a measure, the newest reading in it.
	Time UnixMilli
}

// rounded is a measure for people: to a thousandth, and nothing below 0.
func rounded(measure float32) float64 { return max(0, math.Round(1000*float64(measure))/1000) }
