package vehicle

import (
	"testing"
	"time"

	"carstate/bench/report"
)

// The measurement runs, and its figures make sense.
func TestRun(t *testing.T) {
	var r report.Results
	if err := Run(t.Context(), report.Options{Quick: true, Rounds: 1, Dir: t.TempDir(), Logf: t.Logf}, &r); err != nil {
		t.Fatal(err)
	}
	if want := 2*(len(subjects)*5+1) + 2; len(r.Figures) != want {
		t.Errorf("%d figures, not %d", len(r.Figures), want)
	}
	for _, f := range r.Figures {
		// On so small a heap a collection may seem to cost nothing.
		if f.Value < 0 || f.Value == 0 && f.Unit == "B" {
			t.Errorf("%+v", f)
		}
	}
	if len(r.Plots) != 1 || len(r.Plots[0].Lines) != len(subjects)+2 {
		t.Fatalf("the plots are %+v", r.Plots)
	}
}

// All tables hold what they are given.
func TestTables(t *testing.T) {
	for _, s := range subjects {
		tab := s.make()
		for i := range 100 {
			tab.put(vid(i), recordAt(i))
		}
		tab.forget(vid(7))
		name := []byte(vid(0))
		for i := range 101 {
			want := recordAt(i)
			if i == 7 || i == 100 {
				want = record{}
			}
			if setVID(name, i); string(name) != vid(i) {
				t.Fatalf("%s is not %s", name, vid(i))
			}
			if got := tab.get(name); got != want {
				t.Errorf("%s: vehicle %d: %+v", s.name, i, got)
			}
		}
	}
}

func TestQuantiles(t *testing.T) {
	var l latencies
	for i := 1; i <= 1000; i++ {
		l.add(time.Duration(i) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.999: 999 * time.Microsecond, 1: time.Millisecond} {
		if got := l.quantile(q); got < want*98/100 || got > want*103/100 {
			t.Errorf("quantile %g is %v, not %v", q, got, want)
		}
	}
}
