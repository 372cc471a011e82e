package row

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
)

type Send func(context.Context) error

const window = time.Second

// Measure sends rate requests a second, for a number of windows, and returns the 99th percentile of
// the delays in each. A delay counts from when the request was due, so a stall delays all that are
// due during it.
func Measure(ctx context.Context, windows, rate int, clients []Send, done func(error)) (p99 []time.Duration) {
	began := time.Now()
	end := began.Add(time.Duration(windows) * window)
	var mu sync.Mutex
	took := make([][]time.Duration, windows)
	must.Together(ctx, len(clients), func(ctx context.Context, i int) {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		every := time.Duration(len(clients)) * time.Second / time.Duration(rate)
		for ; due.Before(end); due = due.Add(every) {
			Pause(ctx, time.Until(due))
			err := clients[i](ctx)
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
	for _, t := range took {
		p99 = append(p99, report.Quantile(t, 0.99))
	}
	return p99
}

func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Conn connects when there is a request, and closes after an error.
type Conn struct {
	To    string
	Limit time.Duration // of a request and its answer
	Open  net.Conn      // nil: none

	in *bufio.Reader
}

func (c *Conn) Exchange(ctx context.Context, request string, read func(*bufio.Reader) error) (err error) {
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	deadline := time.Now().Add(c.Limit)
	if c.Open == nil {
		d := net.Dialer{Deadline: deadline}
		if c.Open, err = d.DialContext(ctx, "tcp", c.To); err != nil {
			return err
		}
	}
	if c.in == nil {
		c.in = bufio.NewReaderSize(c.Open, 2<<10)
	}
	if err := c.Open.SetDeadline(deadline); err != nil {
		return err
	}
	_, wrote := io.WriteString(c.Open, request) // a refusal may come before the end of a request
	if err := read(c.in); err != nil {
		return errors.Join(err, wrote)
	}
	return nil
}

func (c *Conn) Ask(ctx context.Context, request string) (answer *http.Response, body string, err error) {
	err = c.Exchange(ctx, request, func(in *bufio.Reader) (err error) {
		if answer, err = http.ReadResponse(in, nil); err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		body = string(text)
		return err
	})
	if err == nil && answer.Close {
		c.Close()
	}
	return answer, body, err
}

func (c *Conn) Close() {
	if c.Open != nil {
		_ = c.Open.Close()
		c.Open, c.in = nil, nil
	}
}

func Question(path, token, vid string) string {
	return "GET " + path + "?access_token=" + token + "&vid=" + vid + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
}

// Upload lacks the body.
func Upload(key, contentType string, length int) string {
	return fmt.Sprintf("POST /v1/telemetry HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: %s\r\nContent-Length: %d\r\n\r\n", key, contentType, length)
}

const NDJSON = "application/x-ndjson"

type Processors = unix.CPUSet

// All sets are equal if there is only one processor.
type Parts struct{ All, One, Others Processors }

func Split(pid int) (p Parts) {
	if err := unix.SchedGetaffinity(pid, &p.All); err != nil {
		must.Fail("cannot determine which processors a process may use: %w", err)
	}
	if p.All.Count() < 2 {
		return Parts{p.All, p.All, p.All}
	}
	first := 0
	for !p.All.IsSet(first) {
		first++
	}
	p.One.Set(first)
	p.Others = p.All
	p.Others.Clear(first)
	return p
}

func Confine(pid int, to *Processors) {
	for {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		must.Do(err)
		moved := false
		for _, t := range tasks {
			id := must.Get(strconv.Atoi(t.Name()))
			var now Processors
			if err := unix.SchedGetaffinity(id, &now); err != nil || now == *to {
				continue
			}
			moved = true // threads started since then inherited the old set
			if err := unix.SchedSetaffinity(id, to); err != nil && !errors.Is(err, unix.ESRCH) {
				must.Fail("cannot confine a process to some processors: %w", err)
			}
		}
		if !moved {
			return
		}
	}
}
