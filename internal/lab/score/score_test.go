package score_test

import (
	"math"
	"testing"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/score"
)

func TestAgreement(t *testing.T) {
	var r score.Agreement
	for _, c := range []struct{ truth, said driving.State }{
		{1, 1}, {1, 1}, {1, 1}, {1, 2}, {2, 2}, {2, 1}, {3, 0}, {3, 3},
	} {
		r.Add(c.truth, c.said)
	}
	want := [3][4]int{{0, 3, 1, 0}, {0, 1, 1, 0}, {1, 0, 0, 1}}
	if r.Confusion != want || r.Rows != 8 || r.Accuracy != 5.0/8 {
		t.Errorf("got %+v, want 8 rows, accuracy 5/8, confusion %v", r, want)
	}
	// F1: 2·3/(4+4), 2·1/(2+2), 2·1/(2+1).
	if f := (0.75 + 0.5 + 2.0/3) / 3; math.Abs(r.MacroF1-f) > 1e-12 {
		t.Errorf("macro-F1: got %v, want %v", r.MacroF1, f)
	}
	if s := r.Of(driving.Jam); s.Precision() != 1 || s.Recall() != 0.5 {
		t.Errorf("jam: got precision %v, recall %v, want 1, 0.5", s.Precision(), s.Recall())
	}

	var one score.Agreement
	one.Add(1, 1)
	if one.MacroF1 != 1 || one.Accuracy != 1 {
		t.Errorf("all right: got %+v, want macro-F1 1, accuracy 1", one)
	}
}
