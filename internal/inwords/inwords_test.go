package inwords_test

import (
	"testing"
	"time"

	"example.org/carstate/internal/inwords"
)

func TestFormats_ByHand(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct{ got, want string }{
		{inwords.Ago(0), "now"}, {inwords.Ago(119 * time.Second), "119 s ago"}, {inwords.Ago(2 * time.Minute), "2 min ago"},
		{inwords.Ago(47 * time.Hour), "47 h ago"}, {inwords.Ago(49 * time.Hour), "2 days ago"},
		{inwords.Until(-time.Second), "over"}, {inwords.Until(90*day - time.Second), "in 90 days"}, {inwords.Until(90 * time.Second), "in 90 s"},
		{inwords.Until(2*time.Hour + time.Second), "in 3 h"},
		{inwords.Count(1234567), "1,234,567"}, {inwords.Count(-1234), "-1,234"}, {inwords.Count(999), "999"},
		{inwords.Number(17.647), "17.6"}, {inwords.Number(7.04), "7"}, {inwords.Number(99.96), "100"}, {inwords.Number(1234.5), "1,235"},
		{inwords.Number(-3.25), "-3.2"}, {inwords.Number(0), "0"}, {inwords.Number(0.01234), "0.012"}, {inwords.Number(0.5), "0.5"},
		{inwords.Measure(40, "percent"), "40 %"}, {inwords.Measure(3, ""), "3"}, {inwords.Measure(8.814, "s"), "8.8 s"},
		{inwords.Measure(852, "s"), "14 min"}, {inwords.RateLimit(""), "no limit"}, {inwords.RateLimit("5/s"), "5/s"},
		{inwords.Seconds(0.00001234), "12.3 µs"}, {inwords.Seconds(0.0123), "12.3 ms"}, {inwords.Seconds(130), "2 min"}, {inwords.Seconds(0), "0 s"},
		{inwords.Bytes(1), "1 B"}, {inwords.Bytes(1536), "1.5 KiB"}, {inwords.Bytes(5 << 30), "5.0 GiB"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
