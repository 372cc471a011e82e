package pull

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.org/carstate/internal/periodic"
)

// post tries until it succeeds, or ctx ends between two requests.
func (p *puller) post(ctx context.Context) error {
	for wait := time.Second; p.lines > 0; wait = min(2*wait, maxWait) {
		asked, err := p.send(context.WithoutCancel(ctx))
		if err == nil {
			break
		}
		p.delayed.Log(p.Log, "telemetry is not accepted now; will try again", "error", err)
		if err := periodic.Pause(ctx, max(wait, asked)); err != nil {
			return err
		}
	}
	p.body, p.lines = p.body[:0], 0
	return nil
}

// Only an answer about lines is final: a proxy's error page must not acknowledge messages.
func (p *puller) send(ctx context.Context) (wait time.Duration, _ error) {
	a, err := p.client.Post(ctx, p.body)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the ingest listener cannot be reached: %w", err)
	case a.Mapped:
		return 0, errors.New("the source has a format of its own: give --format own to carstate source change")
	case a.Status == http.StatusUnauthorized:
		return a.RetryAfter, errors.New("the ingest listener refuses the key of the source: check CARSTATE_KEY")
	case a.Error != "":
		return a.RetryAfter, fmt.Errorf("the ingest listener answers %d: %s", a.Status, a.Error)
	case a.Rejected == nil || a.Accepted+max(a.Total, len(a.Rejected)) != p.lines ||
		a.Status != http.StatusAccepted && a.Status != http.StatusBadRequest && a.Status != http.StatusForbidden:
		return a.RetryAfter, fmt.Errorf("--ingest-url is not carstate's ingest listener: it answers %d", a.Status)
	}
	if p.accepted += a.Accepted; len(a.Rejected) > 0 {
		p.refuse(p.lines-a.Accepted, a.Rejected[0].Reason)
	}
	return 0, nil
}
