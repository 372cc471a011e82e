package ingest

import (
	"regexp"
	"testing"
	"time"

	"example.org/carstate/internal/vehicle"
)

// notRFC3339 are texts that are not a date-time of RFC 3339, or have a leap second.
var notRFC3339 = []string{
	"", "2026-11-20", "2026-11-20T04:00Z", "2026-11-20T04:00:00", "2026-11-20 04:00:00Z", "2026-11-20t04:00:00Z",
	"2026-11-20T04:00:00z", "2026-11-20T04:00:00Z ", " 2026-11-20T04:00:00Z", "2026-11-20T04:00:00ZZ",
	"26-11-20T04:00:00Z", "+2026-11-20T04:00:00Z", "-026-11-20T04:00:00Z", "2026-00-20T04:00:00Z",
	"2026-13-20T04:00:00Z", "2026-11-00T04:00:00Z", "2026-11-31T04:00:00Z", "2026-02-29T04:00:00Z",
	"2026-11-20T4:00:00Z", "2026-11-20T24:00:00Z", "2026-11-20T04:60:00Z", "2026-11-20T04:00:-1Z",
	"2016-12-31T23:59:60Z", "2016-12-31T23:59:61Z",
	"2026-11-20T04:00:00,5Z", "2026-11-20T04:00:00.Z", "2026-11-20T04:00:00.+01:00", "2026-11-20T04:00:00+24:00",
	"2026-11-20T04:00:00+24:01", "2026-11-20T04:00:00+01:60", "2026-11-20T04:00:00+0100", "2026-11-20T04:00:00+01",
}

// FuzzRFC3339 checks that exactly the valid dates in the grammar of RFC 3339 are accepted.
func FuzzRFC3339(f *testing.F) {
	for _, s := range append(notRFC3339, "2026-11-20T04:00:00.250Z", "2026-11-20T04:00:00.5-08:00",
		"2026-11-20T23:59:59+23:59", "2026-11-20T00:00:00-23:59", "2024-02-29T00:00:00Z", "0000-01-01T00:00:00Z",
		"2026-11-20T04:00:00.1239999999Z", "2026-11-20T04:00:00-00:00", "9999-12-31T23:59:59Z") {
		f.Add([]byte(s))
	}
	grammar := regexp.MustCompile(
		`^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
	f.Fuzz(func(t *testing.T, b []byte) {
		at, ok := parseRFC3339(b)
		want, err := time.Parse(time.RFC3339, string(b))
		if exact := err == nil && grammar.Match(b); ok != exact {
			t.Fatalf("%q: accepted %t, want %t", b, ok, exact)
		}
		if ok && at != vehicle.At(want) {
			t.Fatalf("%q: %v, want %v", b, at.Time(), want)
		}
	})
}
