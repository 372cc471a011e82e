package vehicle

// For the tests that try other thresholds on recorded drives.

// Rules are the thresholds of the driving rules.
type Rules = rules

// StandardRules are those in force.
func StandardRules() Rules { return standardRules }

// ObserveWith is Observe with other thresholds.
func ObserveWith(r *Rules, s State, x Sample) State { return observe(r, s, x) }

// Tunable is a threshold that a search may change, and the values it may take.
type Tunable struct {
	Name   string
	At     *float32
	Lo, Hi float32
}

// Tunables are the thresholds that recorded drives could decide on. The ranges
// are what would be reasonable without any recording.
func Tunables(r *Rules) []Tunable {
	return []Tunable{
		{"crawl", &r.crawl, 3, 8},
		{"creep", &r.creep, 14, 22},
		{"fluent", &r.fluent, 25, 40},
		{"perCrawl", &r.perCrawl, 0.2, 1},
		{"perCreep", &r.perCreep, 0.8, 2},
		{"perBetween", &r.perBetween, -3, 0},
		{"perFluent", &r.perFluent, -8, -1},
		{"stopCounts", &r.stopCounts, 20, 90},
		{"jamAt", &r.jamAt, 30, 60},
		{"jamUntil", &r.jamUntil, 10, 30},
		{"mostEvidence", &r.mostEvidence, 62, 120},
		{"slowAt", &r.slowAt, 20, 55},
		{"slowMoves", &r.slowMoves, 0, 18},
	}
}
