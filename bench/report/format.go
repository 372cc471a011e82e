package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Text returns the figure with the range of its rounds and its unit.
func (f *Figure) Text() string {
	if f.Low == 0 && f.High == 0 {
		return strings.TrimSpace(number(f.Value) + " " + f.Unit)
	}
	return strings.TrimSpace(fmt.Sprintf("%s (%s–%s) %s", number(f.Value), number(f.Low), number(f.High), f.Unit))
}

// Verdict says whether the aim was met; it is "" without an aim.
func (f *Figure) Verdict() string {
	if f.Met == nil {
		return ""
	}
	return map[bool]string{true: "yes", false: "no"}[*f.Met]
}

// number formats a value with three significant digits, or more if it has more before the point.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 1000:
		s := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Count formats a number of vehicles for people, such as "100 k" or "1 M".
func Count(n int) string {
	v := float64(n)
	for _, prefix := range []string{"", " k"} {
		if v < 1000 {
			return number(v) + prefix
		}
		v /= 1000
	}
	return number(v) + " M"
}
