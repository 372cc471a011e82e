package admin_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
)

// The timeouts are a hundredth of the real ones.
func TestDeadlines(t *testing.T) {
	key, hash := access.NewSecret(access.AdminKind)
	s := admin.New(admin.Config{Ops: ops.New(ops.Config{Tables: new(access.Tables), AdminKey: hash}),
		Console: http.NotFoundHandler(), Alive: func() error { return nil }})
	for _, d := range []*time.Duration{&s.HTTP.ReadHeaderTimeout, &s.HTTP.ReadTimeout, &s.HTTP.WriteTimeout,
		&s.HTTP.IdleTimeout} {
		*d /= 100
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Errorf("Shutdown: got %v, want no error", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: got %v, want %v", err, http.ErrServerClosed)
		}
	})
	for name, said := range map[string]string{
		"silent":    "",
		"half head": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
		"half body": "POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key +
			"\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
		"idle": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"deaf": strings.Repeat("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", l.Addr().String())
			testkit.NoError(t, err)
			defer c.Close()
			testkit.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
			for err == nil && name == "deaf" {
				_, err = io.WriteString(c, said)
			}
			if err == nil {
				if _, err = io.WriteString(c, said); err == nil {
					_, err = io.Copy(io.Discard, c)
				}
			}
			var network net.Error
			if errors.As(err, &network) && network.Timeout() {
				t.Errorf("the connection: got %v, want it closed by the server", err)
			}
		})
	}
}
