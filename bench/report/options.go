package report

// Options says how a part of the bench has to measure.
type Options struct {
	Quick  bool   // a short run, as a test of the bench; its figures are rough
	Rounds int    // how often each subject is measured, interleaved; the result is the median
	Dir    string // a directory of the part's own, on the disk to be measured; removed afterwards
	Binary string // the built carstate
	// Logf reports progress on the terminal.
	Logf func(format string, args ...any)
}
