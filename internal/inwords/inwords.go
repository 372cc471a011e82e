// Package inwords writes ages, durations, numbers and sizes for people, so that the console and the
// command line write them alike. It knows no page and no language but English.
package inwords

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// units of durations, the largest first.
var units = [...]struct {
	name string
	unit time.Duration
}{{"days", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}

// Duration writes a duration in the largest unit that it has two of, rounded down.
func Duration(d time.Duration) string {
	for _, u := range units {
		if d >= 2*u.unit {
			return fmt.Sprintf("%d %s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// Ago writes how long ago something was.
func Ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return Duration(d) + " ago"
}

// Until writes in what time something will be. It rounds up: what lasts 90 days ends in 90 days.
func Until(d time.Duration) string {
	if d <= 0 {
		return "over"
	}
	for _, u := range units {
		if d >= 2*u.unit {
			d += u.unit - 1
			break
		}
	}
	return "in " + Duration(d)
}

// Count writes a number with its thousands apart.
func Count[N int | int32 | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Number writes a measure: to one decimal, without one from 100 on, and to two significant digits
// below 0.1.
func Number(f float64) string {
	size := math.Abs(f)
	switch {
	case size >= 99.95:
		return Count(int64(math.Round(f)))
	case size > 0 && size < 0.1:
		return strconv.FormatFloat(f, 'g', 2, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// Measure writes a measure with its unit.
func Measure(f float64, unit string) string {
	if unit == "percent" {
		unit = "%"
	}
	return strings.TrimSpace(Number(f) + " " + unit)
}

// Seconds writes a short duration.
func Seconds(s float64) string {
	switch {
	case s == 0:
		return "0 s"
	case s < .001:
		return Number(s*1e6) + " µs"
	case s < 1:
		return Number(s*1e3) + " ms"
	case s < 120:
		return Number(s) + " s"
	}
	return Duration(time.Duration(s * float64(time.Second)))
}

// Rate writes a number a second.
func Rate(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f < 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return Count(int64(f + .5))
}

// Bytes writes a number of bytes.
func Bytes(f float64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if f < 1024 {
			return strconv.FormatFloat(f, 'f', min(1, len(unit)-1), 64) + " " + unit
		}
		f /= 1024
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " GiB"
}
