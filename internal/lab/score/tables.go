package score

import (
	"fmt"
	"io"
	"text/tabwriter"

	"carstate/internal/vehicle"
)

// Tables writes tables with aligned columns as text. After the first error it writes nothing more.
type Tables struct {
	w   *tabwriter.Writer
	err error
}

// NewTables returns tables that are written to w.
func NewTables(w io.Writer) *Tables { return &Tables{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// Line writes one row; a tab ends a cell.
func (t *Tables) Line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format+"\n", args...)
	}
}

// Flush ends a table, so that the next one has columns of its own.
func (t *Tables) Flush() {
	if t.err == nil {
		t.err = t.w.Flush()
	}
}

// Err returns the first error.
func (t *Tables) Err() error { return t.err }

var stateColumns = [...]string{"none", "normal", "slow", "jam"}

// Confusion prints the confusion matrix and the scores of each state.
func (t *Tables) Confusion(a *Agreement) {
	t.Line("\nlabel \\ verdict\tnone\tnormal\tslow\tjam\tprecision\trecall\tF1")
	for truth, row := range a.Confusion {
		s := a.Of(vehicle.DrivingState(truth + 1))
		t.Line("%s\t%d\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f", stateColumns[truth+1], row[0], row[1], row[2], row[3],
			s.Precision(), s.Recall(), s.F1())
	}
	t.Flush()
	t.Line("\n%d labelled rows, accuracy %.3f, macro-F1 %.3f", a.Rows, a.Accuracy, a.MacroF1)
	t.Flush()
}
