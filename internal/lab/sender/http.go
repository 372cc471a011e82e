package sender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/vehicle"
)

// sendTries is how often a batch is sent while the service is busy.
const sendTries = 8

// errOverRate is also for too many samples that are not processed yet.
var errOverRate = errors.New("the source is over its rate")

type httpSender struct {
	*ingest.Client
	as   Login
	body []byte
}

// If trust is nil, HTTP trusts as the system does.
func HTTP(base string, as Login, trust *tls.Config) Sender {
	return &httpSender{Client: ingest.NewClient(base, as.Key, trust), as: as}
}

func (s *httpSender) Door() string { return s.Base }

func (s *httpSender) Close() { s.CloseIdleConnections() }

func (s *httpSender) Send(ctx context.Context, samples []vehicle.Sample) error {
	s.body = s.body[:0]
	for i := range samples {
		s.body = telemetry.AppendJSON(s.body, &samples[i])
	}
	for try := 1; ; {
		wait, err := s.post(ctx)
		switch {
		case s.as.spreads(err):
			wait = askAgain // not counted as a try
		case errors.Is(err, errOverRate): // the service says when to go on
		case err == nil || wait == 0 || try == sendTries:
			return err
		default:
			try++
		}
		if err := periodic.Pause(ctx, wait); err != nil {
			return err
		}
	}
}

func (s *httpSender) host() string {
	if u, err := url.Parse(s.Base); err == nil {
		return u.Host
	}
	return s.Base
}

// If wait is above 0, the caller should post again after it.
func (s *httpSender) post(ctx context.Context) (wait time.Duration, err error) {
	a, err := s.Post(ctx, s.body)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil && a.Status == 0:
		return 0, unreachable("ingest listener", s.host(), "--ingest-addr or --ingest-url", err)
	case err != nil:
		return time.Second, fmt.Errorf("the response of the ingest listener ended early: %w", err)
	case a.Status == http.StatusTooManyRequests:
		return max(time.Second, a.RetryAfter), errOverRate
	case a.Rejected == nil && a.Error == "":
		return 0, fmt.Errorf("%s is not carstate's ingest listener (--ingest-addr, --ingest-url)", s.host())
	case len(a.Rejected) > 0:
		return 0, Refusal{len(a.Rejected), a.Rejected[0].Reason}
	case a.Status == http.StatusAccepted:
		return 0, nil
	case a.Status == http.StatusServiceUnavailable:
		return max(time.Second, min(a.RetryAfter, 30*time.Second)),
			fmt.Errorf("the service does not take telemetry now: %s", a.Error)
	}
	if err = fmt.Errorf("the service refused the telemetry: %s", a.Error); a.Status == http.StatusUnauthorized {
		err = sourceUnknown{err}
	}
	return 0, err
}
