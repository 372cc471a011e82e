package main

import (
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
)

// FuzzArguments checks that lists of vids, lifetimes and overlaps on the command line are either
// parsed or rejected with an error of one line. The error must not quote a long text, which may be
// a secret.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{"all", "ALL", "A,B", "A,,B", "90d", "never", "12h", "-1h", "99999999999999999999d",
		"1e9h", "0s", "A\nB"} {
		f.Add(text)
	}
	now := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.HasPrefix(text, "@") {
			return // a file, whose name the caller chooses
		}
		v, err1 := parseVehicles(text)
		if err1 == nil && !v.All() && v.Len() == 0 {
			t.Error("a list without vehicles was taken")
		}
		at, err2 := lifetime(text, now)
		if err2 == nil && !at.IsZero() && !at.After(now) {
			t.Errorf("%q ends before it begins", text)
		}
		d, err3 := overlap(text)
		if err3 == nil && access.CheckOverlap(d) != nil {
			t.Errorf("%q is an overlap of %s", text, d)
		}
		for _, err := range []error{err1, err2, err3} {
			if err != nil && (strings.ContainsAny(err.Error(), "\r\n") ||
				len(text) > 30 && strings.Contains(err.Error(), text)) {
				t.Errorf("the error is %q", err)
			}
		}
	})
}
