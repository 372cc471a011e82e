package report

import (
	"sync"
	"testing"
)

func TestResultsTakeFiguresFromSeveralGoroutines(t *testing.T) {
	var r Results
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r.Add(Figure{Part: "query", Name: "x"})
			r.Draw(Plot{Part: "query", File: "x"})
		})
	}
	wg.Wait()
	if len(r.Figures) != 8 || len(r.Plots) != 8 {
		t.Errorf("got %d figures and %d plots, want 8 each", len(r.Figures), len(r.Plots))
	}
}
