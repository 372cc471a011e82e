package reliability

import (
	"math"
	"strconv"

	"carstate/bench/report"
)

// number writes a value with three significant digits, as far as it has them.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 || math.Abs(v) >= 1000 {
		return thousands(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// thousands writes a whole number with commas.
func thousands(n int64) string { return report.Thousands(strconv.FormatInt(n, 10)) }
