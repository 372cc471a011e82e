package admin_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"carstate/internal/admin"
	"carstate/internal/testkit"
)

// TestTooManyConnections: whoever can reach the listener takes a bounded number of
// descriptors, and one that is given back is another's.
func TestTooManyConnections(t *testing.T) {
	s := start(t)
	address := strings.TrimPrefix(s.URL, "http://")
	ask := func() (net.Conn, error) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return c, err
		}
		_, err = c.Read(make([]byte, 1))
		return c, err
	}
	var open []net.Conn
	for len(open) < 2000 {
		c, err := ask()
		if err != nil {
			break
		}
		open = append(open, c)
	}
	if len(open) < 500 || len(open) == 2000 {
		t.Fatalf("%d connections are open at once", len(open))
	}
	for _, c := range open {
		c.Close()
	}
	for { // as soon as the server has noticed
		if _, err := ask(); err == nil {
			return
		}
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
