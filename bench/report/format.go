package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Text returns the figure with its unit.
func (f *Figure) Text() string { return strings.TrimSpace(f.Number() + " " + f.Unit) }

// Number returns the value of the figure, with the range of its rounds.
func (f *Figure) Number() string {
	if f.Low == 0 && f.High == 0 {
		return number(f.Value)
	}
	return fmt.Sprintf("%s (%s–%s)", number(f.Value), number(f.Low), number(f.High))
}

// number formats a value with three significant digits. If the value has more than three digits
// before the point, it shows all of them, and no digits after it. An integer has no digits after
// the point.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 1000:
		return Thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Thousands puts commas between the thousands of s, which must be an integer in decimal digits,
// with or without a minus sign.
func Thousands(s string) string {
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// scaled divides a value by the largest of the prefixes k, M, G and T that fits, and returns this
// prefix with a space before it; for values below 1,000 it is "".
func scaled(v float64) (short float64, prefix string) {
	for _, p := range []string{"", " k", " M", " G"} {
		if math.Abs(v) < 1000 {
			return v, p
		}
		v /= 1000
	}
	return v, " T"
}

// Count formats a number of vehicles for people, such as "100 k" or "1 M".
func Count[N int | float64](n N) string {
	short, prefix := scaled(float64(n))
	if prefix == "" {
		return fmt.Sprintf("%.0f", short)
	}
	return number(short) + prefix
}
