package score

import (
	"bufio"
	"fmt"
	"io"
	"text/tabwriter"

	"example.org/carstate/internal/driving"
)

// Tables ends a table at a line without a tab, also an empty one.
type Tables struct {
	w   *tabwriter.Writer
	out *bufio.Writer // keeps the first error
}

func NewTables(w io.Writer) *Tables {
	out := bufio.NewWriter(w)
	return &Tables{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), out}
}

func (t *Tables) Line(format string, args ...any) { fmt.Fprintf(t.w, format+"\n", args...) }

func (t *Tables) End() error {
	_ = t.w.Flush() // the next line returns its error
	return t.out.Flush()
}

var stateColumns = [...]string{"none", "normal", "slow", "jam"}

func (t *Tables) Confusion(a *Agreement) {
	t.Line("\nlabel \\ verdict\tnone\tnormal\tslow\tjam\tprecision\trecall\tF1")
	for truth, row := range a.Confusion {
		s := a.Of(driving.State(truth + 1))
		t.Line("%s\t%d\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f", stateColumns[truth+1], row[0], row[1], row[2], row[3],
			s.Precision(), s.Recall(), s.F1())
	}
	t.Line("\n%d labelled rows, accuracy %.3f, macro-F1 %.3f", a.Rows, a.Accuracy, a.MacroF1)
}
