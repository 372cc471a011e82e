// Package score counts how driving verdicts agree with a known truth. It must never judge.
package score

import "example.org/carstate/internal/driving"

type Agreement struct {
	Rows int `json:"labelled_rows"`
	// rows by the true state minus 1 and the verdict, 0 for none
	Confusion [3][4]int `json:"confusion"`
	Accuracy  float64   `json:"accuracy"`
	// mean F1 of the states that occur
	MacroF1 float64 `json:"macro_f1"`
}

// Add takes 0 for a missing verdict.
func (a *Agreement) Add(truth, verdict driving.State) {
	a.Confusion[truth-1][verdict]++
	a.count()
}

func (a *Agreement) Join(b *Agreement) {
	for i, row := range b.Confusion {
		for j, n := range row {
			a.Confusion[i][j] += n
		}
	}
	a.count()
}

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
	for state := driving.Normal; state <= driving.Jam; state++ {
		if s := a.Of(state); s.labelled+s.said > 0 {
			sum += s.F1()
			states++
		}
	}
	a.MacroF1 = sum / float64(max(states, 1))
}

type State struct{ right, labelled, said int }

func (a *Agreement) Of(state driving.State) State {
	s := State{right: a.Confusion[state-1][state]}
	for _, row := range a.Confusion {
		s.said += row[state]
	}
	for _, n := range a.Confusion[state-1] {
		s.labelled += n
	}
	return s
}

// F1 counts a row without a verdict as a miss.
func (s State) F1() float64 { return Part(2*s.right, s.labelled+s.said) }

func (s State) Precision() float64 { return Part(s.right, s.said) }

func (s State) Recall() float64 { return Part(s.right, s.labelled) }

func Part(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
