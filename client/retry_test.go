//go:build go1.26

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"example.org/carstate/client"
)

const jam = `{"code":200,"msg":"success","data":{"vid":"Car1","status":1,"vehicle_runing_state":"3"}}`

// After the last step, script repeats it.
type script struct {
	steps []step
	at    []time.Duration
	begin time.Time
}

type step func() (*http.Response, error)

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.at = append(s.at, time.Since(s.begin))
	return s.steps[min(len(s.at), len(s.steps))-1]()
}

func says(code int, body string, headers ...string) step {
	return func() (*http.Response, error) {
		h := http.Header{}
		for _, line := range headers {
			name, value, _ := strings.Cut(line, ": ")
			h.Set(name, value)
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func breaks(err error) step { return func() (*http.Response, error) { return nil, err } }

func failure(code int, headers ...string) step {
	return says(code, fmt.Sprintf(`{"code":%d,"msg":"told so","data":null}`, code), headers...)
}

func brokenBody() (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(io.MultiReader(
		strings.NewReader(jam[:20]), iotest.ErrReader(io.ErrUnexpectedEOF)))}, nil
}

var (
	refusedDial = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	noSuchHost  = &net.OpError{Op: "dial", Net: "tcp",
		Err: &net.DNSError{Err: "no such host", Name: "cars.invalid", IsNotFound: true}}
	dnsDown = &net.OpError{Op: "dial", Net: "tcp",
		Err: &net.DNSError{Err: "server misbehaving", Name: "cars.example", IsTemporary: true}}
)

func TestRetries_WhenAndHowOften(t *testing.T) {
	ok := says(200, jam)
	second := time.Second
	for _, c := range []struct {
		name     string
		steps    []step
		patience time.Duration // 0: the default
		deadline time.Duration // 0: none
		tries    int
		// Each wait is at least Retry-After and at most a quarter longer; without it, 50 to 100 ms,
		// 100 to 200 ms and 200 to 400 ms.
		least, most time.Duration
		want        error
	}{
		{name: "answered", steps: []step{ok}, tries: 1},
		{name: "429 with Retry-After", steps: []step{failure(429, "Retry-After: 4"), ok}, tries: 2, least: 4 * second,
			most: 5 * second},
		{name: "503 with Retry-After",
			steps: []step{failure(503, "Retry-After: 1"), failure(503, "Retry-After: 5"), ok},
			tries: 3, least: 6 * second, most: 7500 * time.Millisecond},
		{name: "503 for ever", steps: []step{failure(503, "Retry-After: 1")}, tries: 4, least: 3 * second,
			most: 3750 * time.Millisecond, want: client.ErrUnavailable},
		{name: "429 without Retry-After", steps: []step{failure(429), ok}, tries: 1, want: client.ErrRateLimited},
		{name: "429 with Retry-After 0", steps: []step{failure(429, "Retry-After: 0"), ok}, tries: 1,
			want: client.ErrRateLimited},
		{name: "503 without Retry-After", steps: []step{failure(503), ok}, tries: 2, least: second / 20,
			most: second / 10},
		{name: "503 with Retry-After 0", steps: []step{failure(503, "Retry-After: 0"), ok}, tries: 2,
			least: second / 20, most: second / 10},
		{name: "a gateway's 502, 503 and 504",
			steps: []step{says(502, "<h1>502 Bad Gateway</h1>"), says(503, ""), says(504, "upstream timed out"), ok},
			tries: 4, least: 350 * time.Millisecond, most: 700 * time.Millisecond},
		{name: "a gateway that knows how long",
			steps: []step{says(502, "", "Retry-After: 2"), says(504, "", "Retry-After: 2"), ok},
			tries: 3, least: 4 * second, most: 5 * second},
		{name: "a gateway for ever", steps: []step{says(502, "")}, tries: 4, least: 350 * time.Millisecond,
			most: 700 * time.Millisecond, want: client.ErrUnavailable},
		{name: "a gateway and no patience", patience: -1, steps: []step{says(504, ""), ok}, tries: 1,
			want: client.ErrUnavailable},
		{name: "500 without Retry-After", steps: []step{failure(500), ok}, tries: 1, want: client.ErrUnavailable},
		{name: "longer than patience", steps: []step{failure(429, "Retry-After: 31"), ok}, tries: 1,
			want: client.ErrRateLimited},
		{name: "patience used up", steps: []step{failure(503, "Retry-After: 12")}, tries: 3, least: 24 * second,
			most: 30 * second, want: client.ErrUnavailable},
		{name: "more patience", patience: time.Minute, steps: []step{failure(429, "Retry-After: 31"), ok}, tries: 2,
			least: 31 * second, most: 39 * second},
		{name: "no patience", patience: -1, steps: []step{breaks(refusedDial), ok}, tries: 1,
			want: client.ErrUnreachable},
		{name: "the deadline comes first", deadline: 3 * second, steps: []step{failure(429, "Retry-After: 4"), ok},
			tries: 1, want: client.ErrRateLimited},
		{name: "other refusals", steps: []step{failure(401, "Retry-After: 1"), ok}, tries: 1,
			want: client.ErrInvalidToken},
		{name: "500 with Retry-After", steps: []step{failure(500, "Retry-After: 1"), ok}, tries: 1,
			want: client.ErrUnavailable},
		{name: "not this interface", steps: []step{says(200, "hello", "Retry-After: 1"), ok}, tries: 1,
			want: client.ErrBadAnswer},
		{name: "refused once", steps: []step{breaks(refusedDial), ok}, tries: 2, least: second / 20, most: second / 10},
		{name: "refused for ever", steps: []step{breaks(refusedDial)}, tries: 4, least: 350 * time.Millisecond,
			most: 700 * time.Millisecond, want: syscall.ECONNREFUSED},
		{name: "broken off",
			steps: []step{breaks(io.EOF), brokenBody, breaks(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), ok},
			tries: 4, least: 350 * time.Millisecond, most: 700 * time.Millisecond},
		{name: "name service down", steps: []step{breaks(dnsDown), ok}, tries: 2, least: second / 20,
			most: second / 10},
		{name: "no such host", steps: []step{breaks(noSuchHost), ok}, tries: 1, want: client.ErrUnreachable},
		{name: "something else", steps: []step{breaks(errors.New("no")), ok}, tries: 1, want: client.ErrUnreachable},
		{name: "first the connection, then the rate",
			steps: []step{breaks(io.EOF), failure(429, "Retry-After: 2"), ok},
			tries: 3, least: 2050 * time.Millisecond, most: 2600 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: c.steps, begin: time.Now()}
				options := []client.Option{client.WithHTTPClient(&http.Client{Transport: s})}
				if c.patience != 0 {
					options = append(options, client.WithPatience(max(0, c.patience)))
				}
				ctx := t.Context()
				if c.deadline != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				a, err := client.New("https://cars.example", token, options...).CarDrivingState(ctx, "Car1")
				took := time.Since(s.begin)
				if len(s.at) != c.tries || took < c.least || took > c.most {
					t.Errorf("got %d tries in %s (%v), want %d in %s to %s",
						len(s.at), took, s.at, c.tries, c.least, c.most)
				}
				if !errors.Is(err, c.want) || err == nil && a.State != client.TrafficJam {
					t.Errorf("got %v and error %v, want error %v", a, err, c.want)
				}
				if err != nil {
					mustBeClean(t, err)
				}
			})
		})
	}
}

func TestJitter_SpreadsRetries(t *testing.T) {
	for name, first := range map[string]step{
		"429": failure(429, "Retry-After: 20"), "connection": breaks(refusedDial), "gateway": says(502, ""),
	} {
		waits := map[time.Duration]bool{}
		for range 50 {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []step{first, says(200, jam)}, begin: time.Now()}
				c := client.New("https://cars.example", token, client.WithHTTPClient(&http.Client{Transport: s}))
				if _, err := c.CarDrivingState(t.Context(), "Car1"); err != nil {
					t.Fatalf("%s: got %v, want an answer", name, err)
				}
				waits[s.at[1]] = true
			})
		}
		if len(waits) < 45 {
			t.Errorf("%s: got 50 clients back at %d times, want 45 or more", name, len(waits))
		}
	}
}

func TestEndedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &script{steps: []step{failure(429, "Retry-After: 20")}, begin: time.Now()}
		time.AfterFunc(5*time.Second, cancel)
		c := client.New("https://cars.example", token, client.WithHTTPClient(&http.Client{Transport: s}))
		_, err := c.CarDrivingState(ctx, "Car1")
		if took := time.Since(s.begin); took != 5*time.Second || len(s.at) != 1 {
			t.Errorf("got %d tries in %s, want 1 in 5 s", len(s.at), took)
		}
		if !errors.Is(err, context.Canceled) || !errors.Is(err, client.ErrRateLimited) {
			t.Errorf("got error %v, want context.Canceled and ErrRateLimited", err)
		}
		if e, ok := errors.AsType[*client.Error](err); !ok || e.RetryAfter != 20*time.Second || e.Code != 429 {
			t.Errorf("got %#v, want an *Error with code 429 and a wait of 20 s", err)
		}
	})
}
