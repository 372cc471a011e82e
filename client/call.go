package client

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

const (
	maxTries = 4
	// maxBody is the maximum size of a response in bytes. A response contains the vehicle id,
	// and the longest id that fits into a request line has 8 KiB.
	maxBody = 64 << 10
	// firstDelay is the longest wait before the first retry, if the service sent no
	// Retry-After. The wait doubles with each further retry.
	firstDelay = 100 * time.Millisecond
)

// ask sends a query, and sends it again after an error that may be transient. It returns the last
// error if another attempt cannot help, if maxTries attempts have failed, or if the next attempt
// would begin too late: after the time set by [WithPatience], or after the deadline of ctx.
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

// delay returns how long to wait after attempt number try, counted from 1, or 0 if a retry cannot
// help. The caller adds a random time of at most spread. If the service asks for a wait, wait is
// that time, and spread a quarter of it. Otherwise wait and spread are each half of firstDelay
// after the first attempt, and double with each further attempt.
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

// isOutage reports whether an HTTP status code says that the service cannot be reached at present.
// The client retries after such a code even without Retry-After, which gateways mostly omit.
func isOutage(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

// once sends a query once and returns the parsed answer.
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
