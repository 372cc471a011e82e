package main

import (
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
			t.Errorf("the list %q: got no vehicle and no error, want an error", text)
		}
		at, err2 := lifetime(text, now)
		if err2 == nil && !at.IsZero() && !at.After(now) {
			t.Errorf("the lifetime %q: got the end %s, want one after %s", text, at, now)
		}
		d, err3 := overlap(text)
		if err3 == nil && access.CheckOverlap(d) != nil {
			t.Errorf("the overlap %q: got %s, want an error", text, d)
		}
		for _, err := range []error{err1, err2, err3} {
			if err != nil && (strings.ContainsAny(err.Error(), "\r\n") ||
				len(text) > 30 && strings.Contains(err.Error(), text)) {
				t.Errorf("%q: got the error %q, want one line, without the text if that is long", text, err)
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
			t.Errorf("%s: got %q, %t, want it unchanged, %t as the API, which says %v", text, got, ok, err == nil, err)
		}
	}
}

func TestForgetPrompt_SaysWhatIsKnown(t *testing.T) {
	for err, want := range map[error]string{
		nil: "Everything that is known of this vehicle will be erased on every node. Forget it?",
		fmt.Errorf("this vehicle was forgotten: %w", access.ErrNotFound): "This vehicle was forgotten: " +
			access.ErrNotFound.Error() + ". Forget it?",
	} {
		if got := forgetPrompt(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}
