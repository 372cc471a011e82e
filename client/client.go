package client

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client queries one service with one token. Make one with [New]. A Client is safe for
// concurrent use. It keeps connections open for the next call.
type Client struct {
	base string // the base URL, without a slash at the end; "" if it is invalid
	// token returns the access token. It is a function because every way to print a Client
	// shows only the address of a function, and so never the token.
	token    func() string
	http     *http.Client
	patience time.Duration
}

// Option configures a [Client].
type Option func(*Client)

// WithHTTPClient makes the client send its requests through a copy of h, for example to have other
// certificates, a proxy or another timeout. If h has no Timeout, only the context limits the time
// of an attempt. Redirects are never followed, whatever h says.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		own := *h
		c.http = &own
	}
}

// WithPatience sets how long after its start a call may be retried. If the next retry would begin
// later than d after the start, the call returns its error at once. The random part of the wait
// before a retry is not counted. The default is 30 seconds. If d is zero, no call is retried.
func WithPatience(d time.Duration) Option {
	return func(c *Client) { c.patience = d }
}

const (
	defaultPatience = 30 * time.Second
	attemptTimeout  = 10 * time.Second // for one attempt, answer included
	maxHeaderBytes  = 64 << 10
)

// New returns a client of the service at baseURL, such as https://cars.example. The client sends
// the access token with each query. If baseURL is invalid, every call fails with [ErrBaseURL].
func New(baseURL, token string, options ...Option) *Client {
	c := &Client{
		base:     parseBase(baseURL),
		token:    func() string { return token },
		patience: defaultPatience,
	}
	for _, o := range options {
		o(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport(), Timeout: attemptTimeout}
	}
	// A redirect would send the token to another address.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if r.URL.Scheme == "http" {
				return nil, nil // the proxy would read the token
			}
			return http.ProxyFromEnvironment(r)
		},
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		IdleConnTimeout:        50 * time.Second, // less than the service's 60 s
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
	}
}

// parseBase returns the base URL s without a slash at the end. If s is not a valid base URL,
// parseBase returns "". A URL with a user, a query or a fragment is not valid, because these parts
// could hold a secret.
func parseBase(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return ""
	}
	return strings.TrimRight(u.String(), "/")
}

// The URL paths of the two queries, relative to the base URL.
const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

// CarDrivingState asks whether the vehicle drives normally, slowly, or is in a traffic jam. vid is
// the vehicle's id, 1 to 256 letters and digits; the service refuses any other text, with
// [ErrInvalidRequest]. If the service has no answer about the vehicle, the error is nil, and
// [Answer.Answered] returns false. If ctx ends before there is an answer, the error matches the
// error of ctx. Every error is an [*Error].
func (c *Client) CarDrivingState(ctx context.Context, vid string) (DrivingAnswer, error) {
	r, err := c.ask(ctx, drivingPath, vid)
	if err != nil {
		return DrivingAnswer{}, err
	}
	return DrivingAnswer{Answer: r.answer, State: DrivingState(r.driving)}, nil
}

// ThrottleSystem asks whether the throttle system of the vehicle is normal or has an anomaly. The
// parameters and the errors are those of [Client.CarDrivingState].
func (c *Client) ThrottleSystem(ctx context.Context, vid string) (ThrottleAnswer, error) {
	r, err := c.ask(ctx, throttlePath, vid)
	if err != nil {
		return ThrottleAnswer{}, err
	}
	return ThrottleAnswer{Answer: r.answer, System: ThrottleState(r.throttle)}, nil
}

// String returns a description with the base URL and without the token.
func (c *Client) String() string {
	return "carstate client of " + c.where() + ", token hidden"
}

// GoString returns the same as String, for %#v.
func (c *Client) GoString() string { return c.String() }

// LogValue returns the same as String, for log/slog.
func (c *Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c *Client) where() string {
	if c.base == "" {
		return "no usable address"
	}
	return c.redact(c.base)
}

// redact replaces the token in a text that the service or a library has made.
func (c *Client) redact(s string) string {
	token := c.token()
	for _, t := range []string{token, url.QueryEscape(token)} {
		if t != "" {
			s = strings.ReplaceAll(s, t, "[token]")
		}
	}
	return s
}

const (
	maxTries = 4
	// maxBody is the maximum size of a response in bytes. A response contains the vehicle id,
	// and the longest id that fits into a request line has 8 KiB.
	maxBody = 64 << 10
	// firstDelay is the longest wait before the first retry, if the service sent no
	// Retry-After. The wait doubles with each further retry.
	firstDelay = 100 * time.Millisecond
)

// ask sends a query, and sends it again after an error that may be transient. It returns the parsed
// answer of the first attempt that succeeds. It returns the last error, always an [*Error], if
// another attempt cannot help, if maxTries attempts have failed, or if the next attempt would begin
// too late: after the time set by [WithPatience], or after the deadline of ctx. If ctx ends during
// a wait, ask returns the last error at once, which then also matches the error of ctx.
func (c *Client) ask(ctx context.Context, path, vid string) (*result, error) {
	if c.base == "" {
		return nil, &Error{
			Message: "the base URL must look like https://cars.example or http://127.0.0.1:8080, " +
				"without user, query and fragment",
			causes: []error{ErrBaseURL},
		}
	}
	begin := time.Now()
	for try := 1; ; try++ {
		r, err := c.once(ctx, path, vid)
		if err == nil {
			return r, nil
		}
		wait, spread := err.delay(try)
		if wait == 0 || try == maxTries || time.Since(begin)+wait > c.patience {
			return nil, err
		}
		wait += rand.N(spread + 1)
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
			return nil, err // err says more than that the deadline was exceeded
		}
		select {
		case <-ctx.Done():
			err.causes = append(err.causes, ctx.Err())
			return nil, err
		case <-time.After(wait):
		}
	}
}

// delay returns how long to wait after attempt number try, counted from 1. The caller waits for
// wait plus a random time of at most spread. If a retry cannot help, both are 0. If the service
// asks for a wait, wait is that time, and spread is a quarter of it. Otherwise wait and spread are
// each firstDelay × 2^(try−1) / 2.
func (e *Error) delay(try int) (wait, spread time.Duration) {
	switch {
	case e.RetryAfter > 0 && (e.Code == http.StatusTooManyRequests || isOutage(e.Code)):
		return e.RetryAfter, e.RetryAfter / 4
	case e.broken:
		d := firstDelay << (try - 1)
		return d / 2, d / 2
	}
	return 0, 0
}

// once sends a query once and returns the parsed answer. If there is no valid answer with at most
// maxBody bytes, it returns an error.
func (c *Client) once(ctx context.Context, path, vid string) (*result, *Error) {
	query := url.Values{"access_token": {c.token()}, "vid": {vid}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, &Error{Message: "cannot make a request for " + c.where(), causes: []error{ErrBaseURL}}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Cache-Control", "no-store")
	req.Header.Set("User-Agent", "carstate-client")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.callError(ctx, err)
	}
	defer resp.Body.Close()
	r := &reply{code: resp.StatusCode, header: resp.Header, at: time.Now(), redact: c.redact}
	r.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, c.callError(ctx, err)
	case len(r.body) > maxBody:
		return nil, badAnswer(r, "its answer has more than 64 KiB")
	}
	return parse(r, vid)
}

// callError returns the error for a call that got no complete response because of err. It removes
// the URL that net/http puts into its errors, because the URL contains the token.
func (c *Client) callError(ctx context.Context, err error) *Error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	if text := err.Error(); c.redact(text) != text {
		err = errors.New(oneLine(text, c.redact)) // so that no unwrapped error contains the token
	}
	if ended := ctx.Err(); ended != nil {
		return &Error{Message: "the call to " + c.where() + " ended before there was an answer: " + ended.Error(),
			causes: []error{ended}}
	}
	e := &Error{causes: []error{ErrUnreachable, err}}
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
		e.broken = true
		e.Message = c.where() + " did not answer in time"
		return e
	}
	e.broken = isBroken(err)
	e.Message = "cannot reach " + c.where() + ": " + oneLine(err.Error(), c.redact)
	return e
}
