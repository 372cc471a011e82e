package hostile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The probe asks in an open loop: each request is due at a time of its own and its
// delay counts from then, so that a stall delays all that fall into it.
const (
	probers   = 8
	probeRate = 400 // requests a second over connections that last
	freshRate = 20  // and over new ones
	window    = time.Second
)

// probe asks until ctx ends. It keeps the delays by windows.
type probe struct {
	address string
	request string
	wants   string // in the body

	mu       sync.Mutex
	began    time.Time
	lasting  map[int][]time.Duration // by window
	fresh    []time.Duration
	asked    int
	failures []error
}

func newProbe(w *world) *probe {
	return &probe{
		address: w.Address("query-addr"), wants: `"status":1`, lasting: make(map[int][]time.Duration),
		request: "GET " + drivingPath + "?access_token=" + w.open[0].secret + "&vid=CarNormal HTTP/1.1\r\nHost: localhost\r\n\r\n",
	}
}

// measure asks for some windows and returns the 99th percentile of each.
func (p *probe) measure(ctx context.Context, windows int) (p99 []time.Duration) {
	p.mu.Lock()
	clear(p.lasting)
	p.began = time.Now()
	p.mu.Unlock()
	until := p.began.Add(time.Duration(windows) * window)
	var all sync.WaitGroup
	for i := range probers {
		all.Go(func() {
			p.ask(ctx, until, time.Second*probers/probeRate, time.Duration(i)*time.Second/probeRate, false)
		})
	}
	all.Go(func() { p.ask(ctx, until, time.Second/freshRate, 0, true) })
	all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, took := range p.lasting {
		p99 = append(p99, percentile(took, 0.99))
	}
	return p99
}

func percentile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[min(len(list)-1, int(q*float64(len(list))))]
}

// ask is one client with one connection, or one for each request.
func (p *probe) ask(ctx context.Context, until time.Time, every, offset time.Duration, fresh bool) {
	var c *connection
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	for due := p.began.Add(offset); due.Before(until) && ctx.Err() == nil; due = due.Add(every) {
		time.Sleep(time.Until(due))
		var err error
		if c == nil {
			c, err = dial(ctx, p.address)
		}
		if err == nil {
			err = c.ask(p.request, p.wants)
		}
		took := time.Since(due)
		if c != nil && (fresh || err != nil) {
			_ = c.Close()
			c = nil
		}
		p.mu.Lock()
		p.asked++
		switch {
		case err != nil:
			if ctx.Err() == nil {
				p.failures = append(p.failures, err)
			}
		case fresh:
			p.fresh = append(p.fresh, took)
		default:
			at := int(due.Sub(p.began) / window)
			p.lasting[at] = append(p.lasting[at], took)
		}
		p.mu.Unlock()
	}
}

// connection is that of an honest client.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func dial(ctx context.Context, address string) (*connection, error) {
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{c, bufio.NewReader(c)}, nil
}

// ask sends a request and wants 200 with a text in its body.
func (c *connection) ask(request, wants string) error {
	body, err := c.body(request)
	if err == nil && !strings.Contains(body, wants) {
		err = fmt.Errorf("a good request got %.200q", body)
	}
	return err
}

// body sends a request and reads the body of a 200.
func (c *connection) body(request string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", &statusError{resp.StatusCode, string(body)}
	}
	return string(body), nil
}

// statusError is another answer than 200 to a good request.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("a good request got %d %.200q", e.status, e.body)
}
