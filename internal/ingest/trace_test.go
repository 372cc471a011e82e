package ingest

import (
	"net/http/httptest"
	"testing"
	"time"
)

// TestUntracedCostsNothing checks that a request without a tracer allocates nothing for tracing and
// keeps its context.
func TestUntracedCostsNothing(t *testing.T) {
	in := newIntake(newFixture(t).Config, "http")
	r, b, start := httptest.NewRequest("POST", telemetryPath, nil), new(batch), time.Now()
	if n := testing.AllocsPerRun(100, func() {
		ctx, span := in.span(r.Context(), "POST "+telemetryPath, start)
		if inSpan(ctx, r, span) != r {
			t.Error("the request was replaced")
		}
		in.noteBatch(ctx, b)
		endSpan(span, stored)
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}
