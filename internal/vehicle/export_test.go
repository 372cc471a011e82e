package vehicle

// These names are for the tests that try other thresholds on recorded drives.

// Rules are the thresholds of the driving rules.
type Rules = rules

// StandardRules returns the thresholds in force.
func StandardRules() Rules { return standardRules }

// ObserveWith is like Observe, with other thresholds.
func ObserveWith(r *Rules, s State, x Sample) State {
	s.fold(r, &x)
	return s
}

// Tunable is a threshold that a search may change, and the range of its values.
type Tunable struct {
	Name   string
	At     *float32
	Lo, Hi float32
}

// Tunables returns the thresholds that can be tuned on recorded drives. Each range holds what
// would be reasonable without any recording.
func Tunables(r *Rules) []Tunable {
	return []Tunable{
		{"jam", &r.jam, 0.3, 0.5},
		{"slow", &r.slow, 0.55, 0.8},
		{"crawl", &r.crawl, 3, 8},
		{"fluent", &r.fluent, 25, 40},
		{"stopCounts", &r.stopCounts, 15, 60},
		{"street", &r.street, 25, 40},
		{"perCruise", &r.perCruise, 0.6, 0.9},
	}
}
