// Package inwords formats ages, durations, numbers and sizes as short English texts, so that the
// console and the command line show them in the same way. It knows nothing about pages.
package inwords

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// units are the units of durations, the largest first.
var units = [...]struct {
	name string
	unit time.Duration
}{{"days", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}

// Duration formats d, rounded down, such as "90 s" or "3 h". The unit is the largest in which the
// number is at least 2. If the number is below 2 in all units, the unit is the second.
func Duration(d time.Duration) string {
	for _, u := range units {
		if d >= 2*u.unit {
			return fmt.Sprintf("%d %s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// Ago formats the time d since an event in the past, such as "3 h ago". If d is less than a second,
// the result is "now".
func Ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return Duration(d) + " ago"
}

// Until formats the time d until an event in the future, such as "in 90 days". The time is rounded
// up: the result for a period of 90 days that has just begun is "in 90 days". If d is zero or
// negative, the result is "over".
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

// Count formats a number with a comma between thousands.
func Count[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Number formats a measured value with at most one decimal. A value of 100 or more has no decimal,
// and a value below 0.1 has at most two significant digits.
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

// Measure formats a measured value with its unit, such as "12.5 km/h". The unit "percent" becomes
// "%". A value in the unit "s" is formatted as by [Seconds].
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

// Seconds formats a duration of s seconds. Below 2 minutes, the result is a [Number] of µs, ms or
// s, such as "12.5 ms". From 2 minutes on, it is that of [Duration].
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

// Rate formats a number of events a second, without the unit. A rate below 10 has one decimal,
// except 0. A higher rate is rounded to a whole number.
func Rate(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f < 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return Count(int64(f + .5))
}

// RateLimit formats a maximum rate, such as "10/s". The empty string and "none" become "no limit".
func RateLimit(rate string) string {
	if rate == "" || rate == "none" {
		return "no limit"
	}
	return rate
}

// Bytes formats a number of bytes, such as "1.5 KiB". The unit is the largest of B, KiB, MiB and
// GiB in which the number is at least 1. A number of KiB, MiB or GiB has one decimal.
func Bytes(f float64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if f < 1024 {
			return strconv.FormatFloat(f, 'f', min(1, len(unit)-1), 64) + " " + unit
		}
		f /= 1024
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " GiB"
}
