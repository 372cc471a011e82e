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

// Client queries one service with one token. It is safe for concurrent use.
type Client struct {
	base string // without a slash at the end; "" if it is invalid
	// token is a function: every way to print a Client then shows only its address.
	token    func() string
	http     *http.Client
	patience time.Duration
}

// Option configures a [Client].
type Option func(*Client)

// WithHTTPClient sends requests through a copy of h. If h has no Timeout, only the context limits
// an attempt. Redirects are never followed.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		own := *h
		c.http = &own
	}
}

// WithPatience sets how long after its start a call may be retried, without the random part of the
// wait. The default is 30 seconds; zero is no retry.
func WithPatience(d time.Duration) Option {
	return func(c *Client) { c.patience = d }
}

const (
	defaultPatience = 30 * time.Second
	attemptTimeout  = 10 * time.Second // for one attempt, answer included
	maxHeaderBytes  = 64 << 10
)

// New returns a client of a service such as https://cars.example. If baseURL is invalid, every call
// fails with [ErrBaseURL].
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

// parseBase refuses a user, query or fragment, which could hold a secret.
func parseBase(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return ""
	}
	return strings.TrimRight(u.String(), "/")
}

const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

// CarDrivingState asks how a vehicle drives. vid has 1 to 256 letters and digits. Without an
// answer, the error is nil, and [Answer.Answered] is false. Every error is an [*Error]; it matches
// that of ctx if ctx has ended.
func (c *Client) CarDrivingState(ctx context.Context, vid string) (DrivingAnswer, error) {
	r, err := c.ask(ctx, drivingPath, vid)
	if err != nil {
		return DrivingAnswer{}, err
	}
	return DrivingAnswer{Answer: r.answer, State: DrivingState(r.driving)}, nil
}

// ThrottleSystem asks whether a throttle system is normal or has an anomaly. Its errors are those
// of [Client.CarDrivingState].
func (c *Client) ThrottleSystem(ctx context.Context, vid string) (ThrottleAnswer, error) {
	r, err := c.ask(ctx, throttlePath, vid)
	if err != nil {
		return ThrottleAnswer{}, err
	}
	return ThrottleAnswer{Answer: r.answer, System: ThrottleState(r.throttle)}, nil
}

// String hides the token.
func (c *Client) String() string {
	return "carstate client of " + c.where() + ", token hidden"
}

func (c *Client) GoString() string { return c.String() }

func (c *Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c *Client) where() string {
	if c.base == "" {
		return "no usable address"
	}
	return c.redact(c.base)
}

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
	// An answer repeats the vehicle id; a request line has room for 8 KiB of it.
	maxBody = 64 << 10
	// firstDelay is the longest wait before the first retry without Retry-After. It doubles each
	// time.
	firstDelay = 100 * time.Millisecond
)

// ask retries after transient errors, at most maxTries times, within patience and the deadline of
// ctx.
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

// delay returns the wait after attempt try, counted from 1: wait plus at most spread; both 0: no
// retry.
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

// callError removes the URL that net/http puts into its errors, because it contains the token.
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
