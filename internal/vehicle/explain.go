package vehicle

import "math"

// Explanation says why a rule gave a verdict.
type Explanation struct {
	// Rule is the name of the rule that decided.
	Rule string
	// Version is the version of the rule. It changes whenever the same readings may lead to
	// another verdict.
	Version int
	// Text is one sentence that a user can read.
	Text string
	// Facts are the readings and measures that the rule used.
	Facts []Fact
}

// Fact is one reading or measure that a rule used.
type Fact struct {
	Name  string
	Value float64
	Unit  string
	// Threshold is the value that Value was compared with; NaN if there is none.
	Threshold float64
	// Limit says what a value on one side of the threshold means. "anomaly from" means: an anomaly
	// if the value is at or above the threshold. "jam up to" means: a jam if it is at or below.
	// Limit is "" if there is no threshold.
	Limit string
	// Time is when the value was read. For a measure computed from several readings, it is the time
	// of the newest.
	Time UnixMilli
}

// rounded returns a measure as a Fact shows it: rounded to a thousandth, and 0 if it is negative.
func rounded(measure float32) float64 { return max(0, math.Round(1000*float64(measure))/1000) }
