package main

import (
	"net/url"
	"testing"
	"time"

	"carstate/internal/ops"
)

// TestAuditTime_IsThatOfTheAPI checks that the command accepts the times that the API accepts, and
// no others except ages.
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
