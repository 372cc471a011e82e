package row

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Send sends the next request of one client and waits for the answer.
type Send func(context.Context) error

// window is the time over which a percentile is measured.
const window = time.Second

// Measure sends rate requests a second in total, for a number of windows of one second. The clients
// take turns. The requests are due at a constant rate, regardless of how fast the service answers.
// The delay of each request is measured from the time at which it was due, so a stall delays all
// requests that are due during it. Measure returns the 99th percentile of the delays in each
// window. A failed request is included with its delay until the failure, because its answer would
// have taken at least as long. done receives the error of each request, or nil, one at a time.
// Measure ends early if ctx ends. The percentile of a window without requests is 0.
func Measure(ctx context.Context, windows, rate int, clients []Send, done func(error)) (p99 []time.Duration) {
	began := time.Now()
	end := began.Add(time.Duration(windows) * window)
	var mu sync.Mutex // guards took, and the calls of done
	took := make([][]time.Duration, windows)
	var all sync.WaitGroup
	for i, send := range clients {
		all.Go(func() {
			due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
			every := time.Duration(len(clients)) * time.Second / time.Duration(rate)
			for ; due.Before(end); due = due.Add(every) {
				Pause(ctx, time.Until(due))
				err := send(ctx)
				delay := time.Since(due)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				at := due.Sub(began) / window
				took[at] = append(took[at], delay)
				done(err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, t := range took {
		p99 = append(p99, Percentile(t, 0.99))
	}
	return p99
}

// Conn is the connection of a client by HTTP/1.1. It is opened when there is a request to send.
type Conn struct {
	To    string        // the address of the listener
	TLS   *tls.Config   // nil: no TLS
	Limit time.Duration // for each request and its answer

	conn net.Conn // nil: not connected
	in   *bufio.Reader
}

// Ask sends the bytes of a request and returns the status and the body of the answer, which must
// come within Limit. An answer of any status is no error. After an error, or an answer that says
// that the connection ends with it, Ask closes the connection.
func (c *Conn) Ask(ctx context.Context, request string) (status int, body string, err error) {
	closes := true // until an answer was received
	defer func() {
		if closes {
			c.Close()
		}
	}()
	if c.conn == nil {
		d := net.Dialer{Timeout: c.Limit}
		if c.TLS == nil {
			c.conn, err = d.DialContext(ctx, "tcp", c.To)
		} else {
			c.conn, err = (&tls.Dialer{NetDialer: &d, Config: c.TLS}).DialContext(ctx, "tcp", c.To)
		}
		if err != nil {
			return 0, "", err
		}
		c.in = bufio.NewReader(c.conn)
	}
	err1 := c.conn.SetDeadline(time.Now().Add(c.Limit))
	_, err2 := io.WriteString(c.conn, request)
	if err := errors.Join(err1, err2); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	closes = err != nil || resp.Close
	return resp.StatusCode, string(text), err
}

// Close closes the connection. The next call of Ask opens another one.
func (c *Conn) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
