package inwords

import (
	"testing"
	"time"
)

// TestFormats_ByHand checks each function against results that were written by hand.
func TestFormats_ByHand(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct{ got, want string }{
		{Ago(0), "now"}, {Ago(119 * time.Second), "119 s ago"}, {Ago(2 * time.Minute), "2 min ago"},
		{Ago(47 * time.Hour), "47 h ago"}, {Ago(49 * time.Hour), "2 days ago"},
		{Until(-time.Second), "over"}, {Until(90*day - time.Second), "in 90 days"}, {Until(90 * time.Second), "in 90 s"},
		{Until(2*time.Hour + time.Second), "in 3 h"},
		{Count(1234567), "1,234,567"}, {Count(-1234), "-1,234"}, {Count(999), "999"},
		{Number(17.647), "17.6"}, {Number(7.04), "7"}, {Number(99.96), "100"}, {Number(1234.5), "1,235"},
		{Number(-3.25), "-3.2"}, {Number(0), "0"}, {Number(0.01234), "0.012"}, {Number(0.5), "0.5"},
		{Measure(40, "percent"), "40 %"}, {Measure(3, ""), "3"}, {Measure(8.814, "s"), "8.8 s"},
		{Measure(852, "s"), "14 min"}, {RateLimit(""), "no limit"}, {RateLimit("5/s"), "5/s"},
		{Seconds(0.00001234), "12.3 µs"}, {Seconds(0.0123), "12.3 ms"}, {Seconds(130), "2 min"}, {Seconds(0), "0 s"},
		{Rate(0.04), "0.0"}, {Rate(1234.4), "1,234"}, {Rate(0), "0"},
		{Bytes(1), "1 B"}, {Bytes(1536), "1.5 KiB"}, {Bytes(5 << 30), "5.0 GiB"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
