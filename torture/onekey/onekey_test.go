package onekey

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"example.org/carstate/torture/row"
)

// TestFlood_CountsRequestsInProgress checks that flood.held is the number of requests that have
// begun and not ended, and that stop ends all of them.
// slowly returns senders that take some time for each sample.
func slowly(takes time.Duration, err error) []row.Send {
	return slices.Repeat([]row.Send{func(ctx context.Context) error {
		row.Pause(ctx, takes)
		return err
	}}, senders)
}

// TestMeasureSeesDelaysAndFailures checks that measure attributes the delays and the failures of
// each protocol to that protocol.
func TestMeasureSeesDelaysAndFailures(t *testing.T) {
	a := &row.Attempt{Logf: t.Logf, Stop: func() {}}
	p := &probe{a: a, senders: [][]row.Send{slowly(0, nil), slowly(50*time.Millisecond, nil)}}
	took := p.measure(t.Context(), 1, "nothing")
	if took[1] < 50*time.Millisecond || took[0] >= took[1] || p.sent == 0 || p.failed != 0 {
		t.Errorf("%v, %d sent, %d failed", took, p.sent, p.failed)
	}
	p.senders = [][]row.Send{slowly(0, errors.New("HTTP 503")), slowly(0, nil)}
	if p.measure(t.Context(), 1, "a flood"); p.failed == 0 || a.Outcome().Wrong == 0 {
		t.Errorf("got %d failed, %+v, want failures and findings", p.failed, a.Outcome())
	}
}
