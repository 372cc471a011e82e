package client

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client asks one service with one token. Make one with [New]; it is safe for
// concurrent use, and keeps connections open for the next call.
type Client struct {
	base string // of the service, without a slash at the end; "" if it makes no sense
	// token is a function because one prints as an address, whichever way a
	// Client gets printed.
	token    func() string
	http     *http.Client
	patience time.Duration
}

// Option changes how a [Client] works.
type Option func(*Client)

// WithHTTPClient sends requests through a copy of h, for example one with
// certificates, a proxy or a time-out of its own. Redirects are not followed
// all the same.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		own := *h
		c.http = &own
	}
}

// WithPatience bounds how long after its begin a call may try again, the chance
// part of the last wait aside; the default is 30 seconds. A call that would have
// to wait longer returns at once with the error that it has. Zero: no call tries
// again.
func WithPatience(d time.Duration) Option {
	return func(c *Client) { c.patience = d }
}

const (
	defaultPatience = 30 * time.Second
	attemptTimeout  = 10 * time.Second // of one attempt, answer included
	maxHeaderBytes  = 64 << 10
)

// New returns a client of the service at baseURL, such as https://cars.example,
// which asks with the access token. A baseURL that makes no sense is told by
// every call, as [ErrBaseURL].
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
	// A redirect would carry the token to where it was not given.
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

// parseBase cleans a base URL; "" if it cannot be one. Nothing is taken that
// could hold a secret.
func parseBase(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return ""
	}
	return strings.TrimRight(u.String(), "/")
}

// The paths of the two operations, below the base URL.
const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

// CarDrivingState asks whether the vehicle drives normally, slowly, or is in a
// traffic jam. The vid is the vehicle's id, letters and digits.
func (c *Client) CarDrivingState(ctx context.Context, vid string) (DrivingAnswer, error) {
	r, err := c.ask(ctx, drivingPath, vid)
	if err != nil {
		return DrivingAnswer{}, err
	}
	return DrivingAnswer{Answer: r.answer, State: DrivingState(r.driving)}, nil
}

// ThrottleSystem asks whether the throttle system of the vehicle is normal or
// has an anomaly. The vid is the vehicle's id, letters and digits.
func (c *Client) ThrottleSystem(ctx context.Context, vid string) (ThrottleAnswer, error) {
	r, err := c.ask(ctx, throttlePath, vid)
	if err != nil {
		return ThrottleAnswer{}, err
	}
	return ThrottleAnswer{Answer: r.answer, System: ThrottleState(r.throttle)}, nil
}

// String names the service and hides the token.
func (c *Client) String() string {
	return "carstate client of " + c.where() + ", token hidden"
}

// GoString is String, for %#v.
func (c *Client) GoString() string { return c.String() }

// LogValue is String, for log/slog.
func (c *Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c *Client) where() string {
	if c.base == "" {
		return "no usable address"
	}
	return c.redact(c.base)
}

// redact takes the token out of a text that comes from elsewhere.
func (c *Client) redact(s string) string {
	token := c.token()
	for _, t := range []string{token, url.QueryEscape(token)} {
		if t != "" {
			s = strings.ReplaceAll(s, t, "[token]")
		}
	}
	return s
}
