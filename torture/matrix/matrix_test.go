package matrix

import (
	"math/rand/v2"
	"testing"
)

func TestPaired_DetectsATenth(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	measured := func(longer float64) (a []float64) {
		for range 4000 {
			v := 3 + longer + rng.NormFloat64()*0.3
			if rng.IntN(20) == 0 {
				v += rng.Float64() * 100 // another process ran
			}
			a = append(a, v)
		}
		return a
	}
	if difference, bound := paired(measured(0), measured(0)); bound > 0.06 || difference > bound {
		t.Errorf("equal times differ by %g, at most %g", difference, bound)
	}
	if difference, bound := paired(measured(0.3), measured(0)); bound < 0.25 || difference < 0.25 {
		t.Errorf("a tenth was found to be %g, at most %g", difference, bound)
	}
}
