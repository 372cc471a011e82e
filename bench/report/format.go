package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Count formats a round number for people, such as "100 k" or "1 M".
func Count(n int) string {
	switch {
	case n%1_000_000 == 0:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n%1_000 == 0:
		return fmt.Sprintf("%d k", n/1_000)
	}
	return fmt.Sprint(n)
}

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
// before the point, it shows all of them.
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

// Thousands puts commas into the digits of an integer.
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

// Print writes the figures of the parts as one table for a terminal.
func (d *Document) Print(w io.Writer, parts []string) error {
	for _, r := range d.Runs {
		for _, part := range parts {
			if r.Part == part {
				if _, err := fmt.Fprintf(w, "%s: %s, version %s, %s, %s\n", r.Part, r.Machine, r.Version, plural(r.Rounds, "round"),
					r.Took.Round(1e9)); err != nil {
					return err
				}
			}
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PART\tSUBJECT\tFIGURE\tMEASURED\tUNIT\tAIM\tMET")
	for _, part := range parts {
		for _, f := range d.Figures {
			if f.Part == part {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Part, f.Subject, f.Name, f.Number(), f.Unit, f.Aim,
					strings.Trim(f.met(), "*"))
			}
		}
	}
	return t.Flush()
}

// count formats a number of cars for people, such as "100 k" or "1 M".
func count(n float64) string {
	switch {
	case n >= 1e6:
		return number(n/1e6) + " M"
	case n >= 1e3:
		return number(n/1e3) + " k"
	}
	return fmt.Sprintf("%.0f", n)
}

// quantity formats a value with its unit. It returns a dash for infinity and NaN.
func quantity(v float64, unit string) string {
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "–"
	case unit == "B" || unit == "B/s":
		for _, u := range []struct {
			size float64
			name string
		}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
			if v >= u.size {
				return number(v/u.size) + " " + u.name + unit
			}
		}
	case unit == "n": // a number without a unit
		if v >= 1e6 {
			return number(v/1e6) + " M"
		}
		return number(math.Ceil(v))
	case unit == "s" && v >= 120:
		return number(v/60) + " min"
	case v < 0.01:
		return "< 0.01 " + unit
	}
	return strings.TrimSpace(number(v) + " " + unit)
}
