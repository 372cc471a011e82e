package query

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/testkit"
)

func TestSend_UnreadAnswersDelayNoOthers(t *testing.T) {
	f := newFixture(t)
	f.WriteTimeout = time.Minute
	r := start(t, f.Config)
	defer cutAll(r)
	many := strings.Repeat(f.query("CarJam"), 1000)
	for range 3 {
		c := r.dial(t)
		c.SetWriteDeadline(time.Now().Add(time.Second))
		for {
			// The server reads no more requests when its answers are not read.
			if _, err := io.WriteString(c, many); err != nil {
				break
			}
		}
	}
	c := r.dial(t)
	// Some are in progress until all unread answers wait for their clients.
	testkit.Await(t, "a query is answered", func() bool {
		return c.ask(f.query("CarJam")).status == "HTTP/1.1 200 OK"
	})
}

func cutAll(r *running) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Shutdown(ctx)
}

func (r *running) opened(uses ...listen.Use) int { return r.Guard.Count(uses...) }

func (r *running) waiting() int { return r.opened(listen.Silent, listen.Idle) }

// None of the open ones waits for a request.
func TestTooManyConnections(t *testing.T) {
	f := newFixture(t)
	f.MaxConnections = 1
	asked, hold := make(chan struct{}), make(chan struct{})
	var later atomic.Bool
	f.Ready = func(time.Time) error {
		if !later.Swap(true) {
			close(asked)
			<-hold
		}
		return nil
	}
	r := start(t, f.Config)
	first := r.dial(t)
	io.WriteString(first, f.query("CarJam"))
	<-asked

	second := r.dial(t)
	second.ask(f.query("CarJam")).wants(t, "503 Service Unavailable", "\r\nRetry-After: 1\r\n")
	second.wantsEnd()
	close(hold)
	first.wants("200 OK")
}

func TestConnectionsThatWaitMakeRoom(t *testing.T) {
	for name, said := range map[string]string{
		"silent": "", "half": "GET / HT", "idle": "GET /x HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.MaxConnections, f.HeadTimeout = 3, time.Minute
			r := start(t, f.Config)
			var older []net.Conn
			for range f.MaxConnections {
				c := r.dial(t)
				if io.WriteString(c, said); name == "idle" {
					c.wants("404 Not Found")
				}
				older = append(older, c)
			}
			testkit.Await(t, "all wait", func() bool { return r.waiting() == f.MaxConnections })
			r.dial(t).ask(f.query("CarJam")).wants(t, "200 OK")
			testkit.Await(t, "one has gone", func() bool { return r.opened() == f.MaxConnections })
			closed := make(chan string, len(older))
			for _, o := range older {
				go func() {
					b, err := io.ReadAll(o)
					if err == nil && len(b) == 0 {
						closed <- "closed"
					} else {
						closed <- fmt.Sprintf("%q %v", b, err)
					}
				}()
			}
			if got := <-closed; got != "closed" {
				t.Errorf("an older connection: got %s, want closed", got)
			}
		})
	}
}

// Connections without a handshake, and those that do not read, are evicted; one whose client waits
// before its next query is not.
func TestStrangersMakeRoom(t *testing.T) {
	for name, useTLS := range map[string]bool{"no handshake": true, "unread documents": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			const strangers = 7
			f.MaxConnections, f.HeadTimeout, f.WriteTimeout = 1+strangers, time.Minute, time.Minute
			dial := func(r *running) *peer { return r.dial(t) }
			if useTLS {
				config := f.useTLS(t)
				dial = func(r *running) *peer { return r.dialTLS(t, config) }
			}
			r := start(t, f.Config)
			defer cutAll(r)
			honest := dial(r)
			honest.ask(f.query("CarJam")).wants(t, "200 OK")
			use := listen.Silent
			for range strangers {
				c := r.dial(t)
				if !useTLS {
					use = listen.Sending
					io.WriteString(c,
						strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: h\r\n\r\n", 1000))
				}
			}
			testkit.Await(t, "the strangers are there", func() bool { return r.opened(use) == strangers })
			for range strangers {
				dial(r).ask(f.query("CarJam")).wants(t, "200 OK")
			}
			honest.ask(f.query("CarJam")).wants(t, "200 OK")
		})
	}
}

type flaky struct {
	net.Listener
	fails []syscall.Errno
}

func (f *flaky) Accept() (net.Conn, error) {
	if len(f.fails) > 0 {
		err := f.fails[0]
		f.fails = f.fails[1:]
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
	}
	return f.Listener.Accept()
}

func TestServe_SurvivesTransientAcceptErrors(t *testing.T) {
	f := newFixture(t)
	fl := &flaky{Listener: testkit.Listen(t), fails: []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EHOSTUNREACH,
	}}
	startOn(t, New(f.Config), fl).dial(t).ask(f.query("CarJam")).wants(t, "200 OK")
}

// A connection that was accepted during an overload and sends its first request after it is
// answered, even in a later overload.
func TestServer_Overload(t *testing.T) {
	f := newFixture(t)
	overload := f.limit(t)
	r := start(t, f.Config)
	opened := func(n int) {
		t.Helper()
		testkit.Await(t, fmt.Sprint(n, " connections are open"), func() bool { return r.opened() == n })
	}
	older := r.dial(t)
	older.ask(f.query("CarJam")).wants(t, "200 OK")
	overload()
	newer := r.dial(t)
	newer.ask(f.query("CarJam")).wants(t, "503 Service Unavailable", "\r\nRetry-After: 1\r\n", "overloaded")
	newer.wantsEnd()
	older.ask(f.query("CarJam")).wants(t, "200 OK")
	opened(1)
	waits := r.dial(t)
	opened(2)
	older.Close()
	opened(1)
	for n := range 2 {
		waits.ask(f.query("CarJam")).wants(t, "200 OK")
		r.dial(t)
		opened(2 + n)
	}
}

func TestServer_ExcessEndsConnection(t *testing.T) {
	f := newFixture(t)
	overload := f.limit(t)
	r := start(t, f.Config)
	stays := r.dial(t)
	stays.ask(f.query("CarJam"))
	goes := r.dial(t)
	for round := range 2 {
		for _, c := range []*peer{stays, goes} {
			a := c.ask(f.query("CarJam"))
			a.wants(t, "200 OK")
			if ends := strings.Contains(a.raw, "\r\nConnection: close\r\n"); ends != (round == 1 && c == goes) {
				t.Errorf("round %d: got %s", round, a.raw)
			}
		}
		if round == 0 {
			overload()
		}
	}
	goes.wantsEnd()
}

func TestQueryAllocatesNothing(t *testing.T) {
	testkit.Unraced(t)
	f := newFixture(t)
	f.AccessLog = openLogFor(t, AccessLogConfig{Out: io.Discard})
	c := start(t, f.Config).dial(t)
	t.Cleanup(func() { f.AccessLog.Close() })
	query := []byte(f.queryAs("HUNDRED_A_SECOND"))
	answer := make([]byte, len(c.ask(string(query)).raw))
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.Write(query); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(answer); err != nil || n == 0 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations a query, want none", n)
	}
}
