package admin_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"carstate/internal/admin"
	"carstate/internal/testkit"
)

// startBusy starts a server whose /readyz says on entered that it is asked, and does
// not answer before goOn is called.
func startBusy(t *testing.T, entered chan<- struct{}) (s *service, goOn func()) {
	t.Helper()
	proceed := make(chan struct{})
	s = start(t, func(c *admin.Config) {
		c.Ready = func() error {
			entered <- struct{}{}
			<-proceed
			return nil
		}
	})
	return s, sync.OnceFunc(func() { close(proceed) })
}

// TestTooManyConnections: whoever can reach the listener takes a bounded number of
// descriptors, and keeps nobody out: not with connections that wait, whatever for.
func TestTooManyConnections(t *testing.T) {
	entered := make(chan struct{}, 1)
	s, goOn := startBusy(t, entered)
	defer goOn()
	dial := func(text string) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		return c, bufio.NewReader(c)
	}
	answered := func(in *bufio.Reader) bool {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK
	}
	const healthz = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	_, busy := dial("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-entered
	type client struct {
		net.Conn
		in *bufio.Reader
	}
	var idle []client
	for i := range 1500 {
		switch i % 3 {
		case 0:
			dial("")
		case 1:
			dial("GET /heal")
		default:
			c, in := dial(healthz)
			if !answered(in) {
				t.Fatalf("number %d is not answered", i)
			}
			idle = append(idle, client{c, in})
		}
	}
	open := 0
	for _, c := range idle {
		if _, err := io.WriteString(c, healthz); err == nil && answered(c.in) {
			open++
		}
	}
	if open == 0 || open > 400 {
		t.Errorf("%d of %d connections that were answered are open", open, len(idle))
	}
	goOn()
	if !answered(busy) {
		t.Error("a connection was closed that had a request in work")
	}
}

// TestTooManyAtWork: where all connections have a request in work, the newest goes,
// and what is given back is another's.
func TestTooManyAtWork(t *testing.T) {
	entered := make(chan struct{})
	s, goOn := startBusy(t, entered)
	defer goOn()
	dial := func(path string) net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		return c
	}
	var open []net.Conn
	for range 512 {
		open = append(open, dial("/readyz"))
		<-entered
	}
	if n, err := dial("/healthz").Read(make([]byte, 1)); err == nil {
		t.Errorf("the newest is answered, %d", n)
	}
	goOn()
	for _, c := range open {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if _, err := dial("/healthz").Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestHandshakeThatFails is no line in the log of whoever did not ask for all.
func TestHandshakeThatFails(t *testing.T) {
	fake := httptest.NewUnstartedServer(http.NotFoundHandler())
	fake.StartTLS()
	t.Cleanup(fake.Close)
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		var out testkit.Buffer
		s := start(t, func(c *admin.Config) {
			c.TLS = &tls.Config{Certificates: fake.TLS.Certificates}
			c.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
		})
		_, address, _ := strings.Cut(s.URL, "://")
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "no TLS at all\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil { // ends when the server has logged and closes
			t.Fatal(err)
		}
		if said := strings.Contains(out.String(), "TLS handshake error"); said != (level == slog.LevelDebug) {
			t.Errorf("at %v: %q", level, out.String())
		}
	}
}
