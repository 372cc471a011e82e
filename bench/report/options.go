package report

// Options is how a part of the bench is to measure.
type Options struct {
	Quick  bool   // a short run, to see that it works; its figures are rough
	Rounds int    // how often each subject is measured, interleaved; the median counts
	Dir    string // a directory of the part's own, on a disk; removed afterwards
	Binary string // the built carstate
	// Logf tells the person at the terminal what goes on.
	Logf func(format string, args ...any)
}
