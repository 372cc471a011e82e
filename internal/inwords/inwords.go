// Package inwords formats ages, durations, numbers and sizes as short English texts, for the
// console and the command line.
package inwords

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var units = [...]struct {
	name string
	unit time.Duration
}{{"days", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}

// Duration rounds down, to the largest unit that gives at least 2, such as "90 s" or "3 h".
func Duration(d time.Duration) string {
	for _, u := range units {
		if d >= 2*u.unit {
			return fmt.Sprintf("%d %s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

func Ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return Duration(d) + " ago"
}

// Until rounds up: a period of 90 days that has just begun ends "in 90 days". The past is "over".
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

func Count[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Number uses at most one decimal: none from 100 on, and two significant digits below 0.1.
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

// Measure returns "12.5 km/h", for example. "percent" becomes "%", and "s" is as by [Seconds].
func Measure(f float64, unit string) string {
	switch unit {
	case "s":
		return Seconds(f)
	case "percent":
		unit = "%"
	case "codes", "degrees":
		if f == 1 {
			unit = unit[:len(unit)-1]
		}
	}
	return strings.TrimSpace(Number(f) + " " + unit)
}

// Seconds returns a [Number] of µs, ms or s below 2 minutes, and otherwise a [Duration].
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

func RateLimit(rate string) string {
	if rate == "" || rate == "none" {
		return "no limit"
	}
	return rate
}

func Bytes(f float64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if f < 1024 {
			return strconv.FormatFloat(f, 'f', min(1, len(unit)-1), 64) + " " + unit
		}
		f /= 1024
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " GiB"
}
