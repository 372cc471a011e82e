package telemetry

import (
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
)

// parseRFC3339 drops digits after the milliseconds, and refuses leap seconds, as package time does.
func parseRFC3339(b []byte) (signal.UnixMilli, bool) {
	var t time.Time
	if t.UnmarshalText(b) != nil {
		return 0, false
	}
	// UnmarshalText also accepts an hour of one digit, a comma before the fraction, and offsets
	// beyond 23:59.
	n := len(b)
	if n < len("2006-01-02T15:04:05Z") || b[13] != ':' || b[19] == ',' {
		return 0, false
	}
	if b[n-1] != 'Z' && (string(b[n-5:n-3]) > "23" || string(b[n-2:]) > "59") {
		return 0, false
	}
	return signal.At(t), true
}

func errTimeText(b []byte) *Refusal {
	text := strings.Replace(strings.ToUpper(string(b[:min(len(b), 40)])), " ", "T", 1)
	if _, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text[:1], "0123456789") {
		return NewRefusal(access.BadTime, errTime.Text+": the number must not be in quotes")
	}
	for _, zone := range []string{"", "Z07", "Z0700", "Z07:00"} {
		if _, err := time.Parse("2006-01-02T15:04:05"+zone, text); err != nil {
			continue
		}
		if zone == "" {
			return NewRefusal(access.BadTime, errTime.Text+": the time zone is missing, such as Z or +01:00")
		}
		return NewRefusal(access.BadTime, errTime.Text+" (T and Z in capitals, a point, +01:00 with a colon)")
	}
	return errTime
}
