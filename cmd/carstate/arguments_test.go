package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
)

// FuzzArguments: an error has one line, and quotes no long text, which may be a secret.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{"all", "ALL", "A,B", "A,,B", "90d", "never", "12h", "-1h", "99999999999999999999d",
		"1e9h", "0s", "A\nB"} {
		f.Add(text)
	}
	now := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.HasPrefix(text, "@") {
			return
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

func TestAuditTime_IsThatOfTheAPI(t *testing.T) {
	var api ops.Operations
	for _, text := range []string{"2026-11-20", "2026-11-20T12:00", "2026-11-20T12:00:00", "2026-11-20T12:00:00Z",
		"2026-11-20T12:00:00+01:00", "2026-11-20T12", "2026-11-20 12:00", "12:00"} {
		_, err := api.AskedAudit(url.Values{"since": {text}})
		got, ok := auditTime(text, time.Now())
		if ok != (err == nil) || got != text {
			t.Errorf("%s: got %q, %t, the API says %v", text, got, ok, err)
		}
	}
}

func TestForgetPrompt_SaysWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "Everything that is known of this vehicle will be erased on every node. Forget it?"},
		{errors.New("no carstate answers"),
			"Everything that is known of this vehicle will be erased on every node. Forget it?"},
		{fmt.Errorf("this vehicle was forgotten: %w", access.ErrNotFound),
			"This vehicle was forgotten: " + access.ErrNotFound.Error() + ". Forget it?"},
	} {
		if got := forgetPrompt(c.err); got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
}
