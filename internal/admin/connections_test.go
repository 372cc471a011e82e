package admin_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// Requests for a vehicle are announced by entered, and answered after goOn.
func startBusy(t *testing.T, entered chan<- struct{}) (s *service, ask string, goOn func()) {
	t.Helper()
	proceed := make(chan struct{})
	s = startOps(t, func(c *ops.Config) {
		c.State = func(context.Context, vehicle.ID) (vehicle.State, bool, error) {
			entered <- struct{}{}
			<-proceed
			return vehicle.State{}, false, nil
		}
	})
	ask = "GET /v1/vehicles/A HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + s.Key + "\r\n\r\n"
	return s, ask, sync.OnceFunc(func() { close(proceed) })
}

type conn struct {
	net.Conn
	in *bufio.Reader
}

func (s *service) dial(t *testing.T, text string) conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	testkit.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	testkit.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, _ = io.WriteString(c, text)
	return conn{c, bufio.NewReader(c)}
}

func lender(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s
}

func (c conn) answered() bool {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil
}

const healthz = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestTooManyConnections(t *testing.T) {
	entered := make(chan struct{}, 1)
	s, ask, goOn := startBusy(t, entered)
	defer goOn()
	busy := s.dial(t, ask)
	<-entered
	var idle []conn
	for i := range 1500 {
		switch i % 6 {
		case 0:
			s.dial(t, "")
		case 1:
			s.dial(t, "GET /heal")
		default: // more of these than MaxConnections
			c := s.dial(t, healthz)
			if !c.answered() {
				t.Fatalf("connection %d: got no answer, want one", i)
			}
			idle = append(idle, c)
		}
	}
	open := 0
	for _, c := range idle {
		if _, err := io.WriteString(c, healthz); err == nil && c.answered() {
			open++
		}
	}
	if open == 0 || open > 511 {
		t.Errorf("the connections that were answered: got %d of %d open, want 1 to 511", open, len(idle))
	}
	goOn()
	if !busy.answered() {
		t.Error("a connection with a request in work: got it closed, want an answer")
	}
}

func TestStrangersMakeRoom(t *testing.T) {
	fake := lender(t)
	roots := x509.NewCertPool()
	roots.AddCert(fake.Certificate())
	for name, useTLS := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			const strangers = 7
			s := start(t, func(c *admin.Config) {
				c.MaxConnections = 1 + strangers
				if useTLS {
					c.TLS = &tls.Config{Certificates: fake.TLS.Certificates}
				}
			})
			s.URL = strings.Replace(s.URL, "https://", "http://", 1)
			ask := func(c net.Conn) {
				t.Helper()
				if _, err := io.WriteString(c, healthz); err != nil || !(conn{c, bufio.NewReader(c)}).answered() {
					t.Fatalf("a probe: got no answer, %v; want one", err)
				}
			}
			dial := func() net.Conn {
				c := s.dial(t, "").Conn
				if useTLS {
					c = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "example.com"})
				}
				return c
			}
			honest := dial()
			ask(honest)
			for range strangers {
				s.dial(t, "")
			}
			for range strangers {
				ask(dial())
			}
			ask(honest)
		})
	}
}

func TestTooManyAtWork(t *testing.T) {
	entered := make(chan struct{})
	s, ask, goOn := startBusy(t, entered)
	defer goOn()
	var open []conn
	for range 512 {
		open = append(open, s.dial(t, ask))
		<-entered
	}
	if s.dial(t, healthz).answered() {
		t.Error("connection 513: got an answer, want none")
	}
	goOn()
	for i, c := range open {
		if !c.answered() {
			t.Fatalf("connection %d of 512: got no answer, want one", i)
		}
		c.Close()
	}
	if !s.dial(t, healthz).answered() {
		t.Error("a connection after 512 at work: got no answer, want one")
	}
}

// net/http reads the rest of a body before it answers.
func TestBodiesThatDoNotCome(t *testing.T) {
	entered, began, proceed := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(proceed) })
	defer goOn()
	s := start(t, func(c *admin.Config) {
		c.Alive = func() error { entered <- struct{}{}; return nil }
		c.Console = slowPage{began, proceed}
	})
	page := s.dial(t, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-began
	const waits = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
	for range 2 * 512 {
		s.dial(t, waits)
		select {
		case <-entered:
		case <-time.After(time.Minute):
			t.Fatal("a connection without its body: got nothing in a minute, want it in work")
		}
	}
	for i := range 20 {
		if !s.dial(t, healthz).answered() {
			t.Fatalf("probe %d: got no answer, want one", i)
		}
		<-entered
	}
	goOn()
	if !page.answered() {
		t.Error("the connection of one who is logged in: got it closed, want an answer")
	}
}

// Every caller is logged in.
type slowPage struct {
	began chan<- struct{}
	goOn  <-chan struct{}
}

func (p slowPage) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	listen.Hold(r.Context())
	p.began <- struct{}{}
	<-p.goOn
}

func (slowPage) Close() {}

func TestLogOfStrangers(t *testing.T) {
	s := start(t)
	wrong := header("Authorization", "Bearer wrong")
	lines := func() int { return strings.Count(s.log.String(), `"level":"WARN"`) }
	for range 50 {
		s.clock.Advance(100 * time.Millisecond)
		s.want(t, "GET", "/v1/tokens", "", http.StatusUnauthorized, "", wrong)
	}
	if n := lines(); n != 10 {
		t.Errorf("50 wrong keys in 5 s: got %d lines, want 10", n)
	}
	s.clock.Advance(time.Minute)
	s.do(t, "GET", "/v1/tokens", "", wrong)
	if said := s.log.String(); lines() != 11 || !strings.Contains(said, `"times_since_last_line":40`) {
		t.Errorf("a wrong key a minute later: got the log %s, want line 11, about 40 times", said)
	}
}

func TestHandshakeThatFails(t *testing.T) {
	fake := lender(t)
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		var out testkit.Buffer
		s := start(t, func(c *admin.Config) {
			c.TLS = &tls.Config{Certificates: fake.TLS.Certificates}
			c.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
		})
		// ReadAll returns once the server has logged and closed the connection.
		testkit.NoError(t, second(io.ReadAll(s.dial(t, "no TLS at all\r\n\r\n"))))
		if said := strings.Contains(out.String(), "TLS handshake error"); said != (level == slog.LevelDebug) {
			t.Errorf("no TLS, log level %v: got %q, want the handshake error at DEBUG alone", level, out.String())
		}
	}
}
