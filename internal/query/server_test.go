package query_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/test/testkit"
)

// No goroutine may outlive the servers.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer_TLS(t *testing.T) {
	f := newFixture(t)
	conf := f.useTLS(t)
	conf.NextProtos = []string{"h2", "http/1.1"}
	r := start(t, f.Config)
	c := tls.Client(r.dial(t), conf)
	p := newPeer(t, c)
	io.WriteString(p, f.query("CarJam")+f.query("CarSlow"))
	p.wants("200 OK", `"3"`)
	p.wants("200 OK", `"2"`)
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		t.Errorf("the protocol: got %q, want http/1.1", p)
	}
	c.Close()

	// Over TLS, too, the answer arrives before the connection ends.
	p = r.dialTLS(t, conf)
	p.ask(f.line("CarJam")+"Host: x\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 50000)).
		wants(t, "400 Bad Request")
	p.wantsEnd()

	p = r.dial(t)
	io.WriteString(p, f.query("CarJam"))
	if b, _ := io.ReadAll(p); bytes.Contains(b, []byte("CarJam")) {
		t.Errorf("plain HTTP: got %q, want no answer", b)
	}
	conf.NextProtos = []string{"h2"}
	if err := tls.Client(r.dial(t), conf).Handshake(); err == nil {
		t.Error("a client that speaks HTTP/2 only: got it accepted, want an error")
	}
}

// Half a head gets an answer although the write deadline of the handshake has passed; a silent
// connection gets none.
func TestSlowHeadOverTLS(t *testing.T) {
	f := newFixture(t)
	conf := f.useTLS(t)
	f.HeadTimeout, f.WriteTimeout = 1500*time.Millisecond, time.Second
	r := start(t, f.Config)
	half, silent := r.dialTLS(t, conf), tls.Client(r.dial(t), conf)
	testkit.NoError(t, silent.Handshake())
	half.ask(f.line("CarJam")).wants(t, "408 Request Timeout")
	newPeer(t, silent).wantsEnd()
}

func TestSlowHead(t *testing.T) {
	f := newFixture(t)
	f.HeadTimeout = 300 * time.Millisecond
	r := start(t, f.Config)
	began := time.Now()
	c := r.dial(t)
	// Single bytes at intervals do not extend the deadline.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, b := range []byte(f.query("CarJam") + f.query("CarJam")) {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		}
	})
	c.wants("408 Request Timeout", "\r\nConnection: close\r\n")
	if took := time.Since(began); took < f.HeadTimeout || took > 10*f.HeadTimeout {
		t.Errorf("the answer: got it after %s, want %s to %s", took, f.HeadTimeout, 10*f.HeadTimeout)
	}
	close(stop)
	wg.Wait()

	r.dial(t).wantsEnd()
}

func TestIdleConnectionIsClosed(t *testing.T) {
	f := newFixture(t)
	f.IdleTimeout = 100 * time.Millisecond
	c := start(t, f.Config).dial(t)
	c.ask(f.query("CarJam"))
	c.wantsEnd()
}

func TestClientThatDoesNotRead(t *testing.T) {
	f := newFixture(t)
	f.WriteTimeout = 200 * time.Millisecond
	r := start(t, f.Config)
	c := r.dial(t)
	many := strings.Repeat(f.query("CarJam"), 1000)
	for {
		if _, err := io.WriteString(c, many); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a client that does not read: got a server that waits for ever, want an end")
			}
			return
		}
	}
}

func TestMetrics_CountOutcomes(t *testing.T) {
	f := newFixture(t)
	c := start(t, f.Config).dial(t)
	for _, q := range []string{f.query("CarJam"), f.query("CarJam"), f.query("CarOld"),
		"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "nonsense\r\n\r\n"} {
		c.ask(q)
	}
	for _, w := range []struct {
		operation, outcome string
		n                  float64
	}{
		{"car_driving_state", "answered", 2},
		{"car_driving_state", "stale", 1},
		{"none", "not_found", 1},
		{"none", "invalid_request", 1},
		{"throttle_system", "answered", 0},
	} {
		if n := testkit.Metric(t, f.metrics, query.MetricQueries, "operation", w.operation, "outcome", w.outcome); n != w.n {
			t.Errorf("queries of %s with outcome %s: got %v, want %v", w.operation, w.outcome, n, w.n)
		}
	}
	if n := testkit.Metric(t, f.metrics, query.MetricDuration); n != 3 {
		t.Errorf("got %v durations, want 3", n)
	}
}

func TestShutdown_DrainsRequests(t *testing.T) {
	f := newFixture(t)
	asked, hold := make(chan struct{}, 1), make(chan struct{})
	var later atomic.Bool
	f.Ready = func(time.Time) error {
		if !later.Swap(true) {
			asked <- struct{}{}
			<-hold
		}
		return nil
	}
	r := start(t, f.Config)
	silent := r.dial(t)
	busy := r.dial(t)
	io.WriteString(busy, f.query("CarJam"))
	<-asked
	idle := r.dial(t)
	idle.ask(f.query("CarSlow"))

	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.shutdown(t)
	}()
	silent.wantsEnd()
	idle.wantsEnd()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("connections without a request: got them closed after %s, want at most 3s", took)
	}
	if err := <-r.done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: got %v, want %v", err, net.ErrClosed)
	}
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("a connection after the shutdown began: got it accepted, want an error")
	}
	select {
	case <-ended:
		t.Fatal("the shutdown with a request in progress: got its end, want it to wait")
	default:
	}
	close(hold)
	busy.wants("200 OK", "\r\nConnection: close\r\n")
	<-ended
	if err := r.Serve(testkit.Listen(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve again: got %v, want %v", err, net.ErrClosed)
	}
}

// The first connection that pipes accepts is the pipe in one, whose writes block until the other
// end reads.
type pipes struct {
	net.Listener
	one chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.one:
		return c, nil
	default:
		return p.Listener.Accept()
	}
}

func TestShutdown_CutsAtDeadline(t *testing.T) {
	f := newFixture(t)
	f.WriteTimeout = time.Minute
	c, theirs := net.Pipe()
	defer c.Close()
	one := make(chan net.Conn, 1)
	one <- theirs
	s := query.New(f.Config)
	r := &running{Server: s, done: make(chan error, 1)}
	go func() { r.done <- s.Serve(&pipes{testkit.Listen(t), one}) }()
	io.WriteString(c, f.query("CarJam"))
	testkit.Await(t, "the request has arrived", func() bool { return r.opened() == 1 && r.waiting() == 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: got %v, want %v", err, context.DeadlineExceeded)
	}
	if err := <-r.done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: got %v, want %v", err, net.ErrClosed)
	}
	testkit.Await(t, "the connection is gone", func() bool { return r.opened() == 0 })
}

func TestShutdown_ClosesHalfHeads(t *testing.T) {
	f := newFixture(t)
	f.HeadTimeout = time.Minute
	r := start(t, f.Config)
	c := r.dial(t)
	c.ask(f.query("CarJam") + f.line("CarJam"))
	testkit.Await(t, "it waits for the rest", func() bool { return r.waiting() == 1 })
	r.shutdown(t)
	c.wantsEnd()
}

func TestPanic_InRequestEndsConnectionOnly(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.Log = slog.New(slog.NewTextHandler(&log, nil))
	var bug atomic.Bool
	bug.Store(true)
	f.Ready = func(time.Time) error {
		if bug.Swap(false) {
			panic(fmt.Sprintf("bug near %s", f.secrets["TOKEN"]))
		}
		return nil
	}
	r := start(t, f.Config)
	c := r.dial(t)
	c.ask(f.query("CarJam")).wants(t, "503 Service Unavailable", "\r\nConnection: close\r\n")
	c.wantsEnd()
	bug.Store(true)
	c = r.dial(t)
	c.ask(strings.Replace(f.query("CarJam"), "GET", "HEAD", 1)).wants(t, "503 Service Unavailable")
	c.wantsEnd()
	r.dial(t).ask(f.query("CarJam")).wants(t, "200 OK")
	if s := log.String(); !strings.Contains(s, "this is a bug") || strings.Contains(s, f.secrets["TOKEN"]) {
		t.Errorf(`the log: got %s, want "this is a bug", and no token`, s)
	}
}

func TestPanic_InHandshakeEndsConnectionOnly(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.Log = slog.New(slog.NewTextHandler(&log, nil))
	conf := f.useTLS(t)
	var once sync.Once
	f.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		once.Do(func() { panic("bug") })
		return nil, nil
	}
	r := start(t, f.Config)
	if err := tls.Client(r.dial(t), conf).Handshake(); err == nil {
		t.Error("the handshake: got no error, want one")
	}
	r.dialTLS(t, conf).ask(f.query("CarJam")).wants(t, "200 OK")
	r.shutdown(t)
	if s := log.String(); !strings.Contains(s, "this is a bug") {
		t.Errorf(`the log: got %s, want "this is a bug"`, s)
	}
}

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

// Connections without a handshake, and those that do not read, are evicted; one that waits before
// its next query is not.
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
					io.WriteString(c, strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: h\r\n\r\n", 1000))
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
	startOn(t, query.New(f.Config), fl).dial(t).ask(f.query("CarJam")).wants(t, "200 OK")
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
				t.Errorf("round %d: got %s, want Connection: close: %t", round, a.raw, round == 1 && c == goes)
			}
		}
		if round == 0 {
			overload()
		}
	}
	goes.wantsEnd()
}
