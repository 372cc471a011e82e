package sender

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/vehicle"
)

// sendTries is the maximum number of times that a batch of samples is sent while the service is
// busy.
const sendTries = 8

// errOverRate means that the source must wait, because of its rate or because too many of its samples
// are not processed yet.
var errOverRate = errors.New("the source is over its rate")

// httpSender sends samples as NDJSON by HTTP.
type httpSender struct {
	url    string
	as     Login
	client *http.Client
	body   []byte
}

// HTTP returns a sender to the HTTP ingest listener at the URL base. trust determines which
// certificates of the service are accepted. If nil, those that the system trusts are.
func HTTP(base string, as Login, trust *tls.Config) Sender {
	return &httpSender{
		url: strings.TrimSuffix(base, "/") + "/v1/telemetry",
		as:  as,
		client: &http.Client{
			Timeout:   30 * time.Second,
			Transport: &http.Transport{TLSClientConfig: trust, Proxy: http.ProxyFromEnvironment},
			// Following a redirect would send the key to another address.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (s *httpSender) Door() string { return strings.TrimSuffix(s.url, "/v1/telemetry") }

func (s *httpSender) Close() { s.client.CloseIdleConnections() }

func (s *httpSender) Send(ctx context.Context, samples []vehicle.Sample) error {
	s.body = s.body[:0]
	for i := range samples {
		s.body = ingest.AppendJSON(s.body, &samples[i])
	}
	for try := 1; ; {
		wait, err := s.post(ctx)
		switch {
		case s.as.spreads(err):
			wait = askAgain // not counted as a try
		case errors.Is(err, errOverRate): // nor is this: the service says when to go on
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

// post sends the buffered samples once. The error is nil if all of them were stored, and a
// [Refusal] if some were refused. If wait is above 0, err says that the service is busy or that its
// response ended early, and the caller should call post again after the time wait.
func (s *httpSender) post(ctx context.Context) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.body))
	if err != nil {
		return 0, errors.New("invalid ingest address (--ingest-url, --ingest-addr)")
	}
	req.Header.Set("Authorization", "Bearer "+s.as.Key)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := s.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, unreachable("ingest listener", req.URL.Host, "--ingest-addr or --ingest-url", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return time.Second, fmt.Errorf("the response of the ingest listener ended early: %w", err)
	}
	var answer struct {
		Error    string `json:"error"`
		Rejected []struct {
			Line   int    `json:"line"`
			Reason string `json:"reason"`
		} `json:"rejected"`
	}
	if err := json.Unmarshal(text, &answer); err != nil ||
		resp.StatusCode != http.StatusAccepted && answer.Error == "" && answer.Rejected == nil {
		return 0, fmt.Errorf("%s is not carstate's ingest listener (--ingest-addr, --ingest-url)",
			req.URL.Host)
	}
	switch {
	case len(answer.Rejected) > 0:
		return 0, Refusal{len(answer.Rejected), answer.Rejected[0].Reason}
	case resp.StatusCode == http.StatusAccepted:
		return 0, nil
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if wait = time.Duration(max(1, seconds)) * time.Second; resp.StatusCode == http.StatusTooManyRequests {
			return wait, errOverRate
		}
		return min(wait, 30*time.Second), fmt.Errorf("the service does not take telemetry now: %s", answer.Error)
	}
	err = fmt.Errorf("the service refused the telemetry: %s", answer.Error)
	if resp.StatusCode == http.StatusUnauthorized {
		err = sourceUnknown{err}
	}
	return 0, err
}
