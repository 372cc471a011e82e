// Package score counts how driving verdicts agree with a known truth: labels of a
// recording, or the state of a simulated road. It must never judge.
package score

import "example.org/carstate/internal/vehicle"

// Agreement says how verdicts agree with the truth. A row is one comparison of a verdict with the
// truth.
type Agreement struct {
	Rows int `json:"labelled_rows"`
	// Confusion counts the rows. The first index is the true state minus 1. The second is the
	// verdict's state, or 0 if there is no verdict.
	Confusion [3][4]int `json:"confusion"`
	Accuracy  float64   `json:"accuracy"`
	// MacroF1 is the mean of the F1 scores of the states. States that were neither the truth nor
	// the verdict of any row are left out.
	MacroF1 float64 `json:"macro_f1"`
}

// Add adds one row. The truth must not be 0. A missing verdict is 0.
func (a *Agreement) Add(truth, verdict vehicle.DrivingState) {
	a.Confusion[truth-1][verdict]++
	a.count()
}

// Join adds the rows of another agreement.
func (a *Agreement) Join(b *Agreement) {
	for i, row := range b.Confusion {
		for j, n := range row {
			a.Confusion[i][j] += n
		}
	}
	a.count()
}

// count computes Rows, Accuracy and MacroF1 from Confusion.
func (a *Agreement) count() {
	right := 0
	a.Rows = 0
	for truth, row := range a.Confusion {
		right += row[truth+1]
		for _, n := range row {
			a.Rows += n
		}
	}
	a.Accuracy = Part(right, a.Rows)
	sum, states := 0.0, 0
	for state := vehicle.NormalDriving; state <= vehicle.TrafficJam; state++ {
		if s := a.Of(state); s.labelled+s.said > 0 {
			sum += s.F1()
			states++
		}
	}
	a.MacroF1 = sum / float64(max(states, 1))
}

// State has three counts of rows for one driving state. labelled are the rows with this state as
// the truth, said those with this state as the verdict, and right those with both.
type State struct{ right, labelled, said int }

// Of returns the counts of a driving state, from which its scores are computed.
func (a *Agreement) Of(state vehicle.DrivingState) State {
	s := State{right: a.Confusion[state-1][state]}
	for truth, row := range a.Confusion {
		s.said += row[state]
		for _, n := range row {
			if truth == int(state-1) {
				s.labelled += n
			}
		}
	}
	return s
}

// F1 returns the harmonic mean of precision and recall, 2·right/(labelled+said). If this state is
// the truth of a row that has no verdict, the row counts as a miss. If the state is neither the
// truth nor the verdict of any row, the result is 0.
func (s State) F1() float64 { return Part(2*s.right, s.labelled+s.said) }

// Precision returns the share of the verdicts of this state that were right, from 0 to 1, or 0 if
// there are no such verdicts.
func (s State) Precision() float64 { return Part(s.right, s.said) }

// Recall returns the share of the rows with this state as truth whose verdict was right, from 0 to
// 1, or 0 if there are no such rows.
func (s State) Recall() float64 { return Part(s.right, s.labelled) }

// Part returns n/of, or 0 if of is 0.
func Part(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
