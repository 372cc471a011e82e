package http1_test

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/testkit"
)

// echo answers with the path. The answer to /long is longer than what is collected before it is sent.
// An answer to /wait waits for the test.
type echo struct {
	http1.Response
	waits, goOn chan struct{}
}

func (e *echo) Answer(r *http1.Request, _ time.Time) *http1.Response {
	e.Reset()
	e.Status, e.Body = 200, append(e.Body, r.Target...)
	switch string(r.Target) {
	case "/wait":
		e.waits <- struct{}{}
		<-e.goOn
	case "/long":
		e.Body = append(e.Body, make([]byte, 10<<10)...)
	}
	return &e.Response
}

func (e *echo) Refuse(http1.Fault, time.Time) *http1.Response {
	e.Reset()
	e.Status = 400
	return &e.Response
}

func (*echo) Done(*http1.Request, time.Time, time.Duration) {}

// TestEvicted_LeavesNothing checks that what was not sent on a connection that was evicted between
// two of its answers is not sent on the next one.
func TestEvicted_LeavesNothing(t *testing.T) {
	waits, goOn := make(chan struct{}), make(chan struct{})
	s := http1.New(http1.Config{
		NewHandler: func() http1.Handler { return &echo{waits: waits, goOn: goOn} },
		Listen:     listen.Config{Max: 1, Log: slog.New(slog.DiscardHandler)},
	})
	l := testkit.Listen(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for range 20 { // an exchange is not always used again at once
		c := testkit.Dial(t, l.Addr().String())
		_, _ = io.WriteString(c, "GET /long HTTP/1.1\r\nHost: a\r\n\r\n"+
			"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		<-waits
		next := testkit.Dial(t, l.Addr().String()) // evicts c
		testkit.Await(t, "it is accepted", func() bool { return s.Guard.Count(listen.Silent) == 1 })
		goOn <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
		_, _ = io.WriteString(next, "GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if b, err := io.ReadAll(next); err != nil || strings.Count(string(b), "HTTP/1.1 200") != 1 ||
			!strings.HasSuffix(string(b), "\r\n\r\n/next") {
			t.Fatalf("got %q, %v, want only the answer to /next", b, err)
		}
	}
	testkit.NoError(t, s.Shutdown(testkit.Context(t)))
	<-served
}
