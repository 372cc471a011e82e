package admin_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/test/testkit"
)

func fails(t *testing.T, c *client.Client, ctx context.Context) string {
	t.Helper()
	_, err := c.Tokens(ctx)
	if err == nil {
		t.Fatal("the list of tokens: got it, want an error")
	}
	line := err.Error()
	if c.Key != "" && strings.Contains(line, c.Key[4:20]) || strings.ContainsAny(line, "\n\r") {
		t.Errorf("the error: got %q, want one line without the key", line)
	}
	return line
}

func expect(t *testing.T, line string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(line, part) {
			t.Errorf("the error: got %q, want it with %q", line, part)
		}
	}
}

func TestClientNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	url := "http://" + l.Addr().String()
	l.Close()
	key, _ := access.NewSecret(access.AdminKind)
	expect(t, fails(t, &client.Client{URL: url, Key: key}, t.Context()),
		"no carstate answers at "+url, "is `carstate serve` running?", "--admin-addr")
}

// A rate that cannot be written would be no limit at all.
func TestClientRate(t *testing.T) {
	s := start(t)
	for _, r := range []access.Rate{
		{Calls: 5, Window: 24 * time.Hour}, {Calls: 5}, {Calls: -5, Window: time.Second},
		{Calls: 2_000_000, Window: time.Hour}, {Window: time.Second},
	} {
		_, err := s.IssueToken(t.Context(), access.Credential{Developer: "Ada", Operations: access.AllOperations,
			Vehicles: access.AllVehicles(), Rate: r})
		if err == nil {
			t.Errorf("the rate %+v: got no error, want one", r)
			continue
		}
		expect(t, err.Error(), "a rate is a whole number from 1 to 1000000 and /s, /min or /h")
	}
}

func TestClientWrongKey(t *testing.T) {
	s := start(t)
	s.Key, _ = access.NewSecret(access.AdminKind)
	expect(t, fails(t, s.Client, t.Context()), "does not accept this key", "--data-dir")
}

func TestClientWrongURL(t *testing.T) {
	key, _ := access.NewSecret(access.AdminKind)
	for _, url := range []string{"", "127.0.0.1:8082", "localhost", "ftp//x", "http://", "http://a b/", ":"} {
		expect(t, fails(t, &client.Client{URL: url, Key: key}, t.Context()), "--admin-addr")
	}
	line := fails(t, &client.Client{URL: "http://joe:hunter2@127.0.0.1:1", Key: key}, t.Context())
	if strings.Contains(line, "hunter2") {
		t.Errorf("the error: got %q, want it without the password", line)
	}
}

func TestClientSomebodyElseAnswers(t *testing.T) {
	var seen http.Header
	for name, handler := range map[string]http.HandlerFunc{
		"a page":      func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<html>")) },
		"a plain 404": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"the query side": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(404)
			w.Write([]byte(`{"code":404,"msg":"x","data":null}`))
		},
		"an answer cut off": func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(`{"tokens":[`)) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					seen = r.Header
				}
				handler(w, r)
			}))
			defer other.Close()
			key, _ := access.NewSecret(access.AdminKind)
			c := &client.Client{URL: other.URL, Key: key}
			expect(t, fails(t, c, t.Context()), "is not carstate's admin listener", "--admin-addr")
			if _, err := c.Token(t.Context(), "x"); errors.Is(err, access.ErrNotFound) {
				t.Errorf("the token: got %v, want an error other than %v", err, access.ErrNotFound)
			}
			if seen != nil {
				t.Errorf("the redirect: got a request with %v, want none", seen)
			}
		})
	}
}

func TestClientPatience(t *testing.T) {
	asked, over := make(chan struct{}, 1), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/interrupted/") {
			asked <- struct{}{}
		}
		<-over
	}))
	defer slow.Close()
	defer close(over)
	key, _ := access.NewSecret(access.AdminKind)
	c := &client.Client{URL: slow.URL, Key: key}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	expect(t, fails(t, c, ctx), "did not answer in time (--admin-addr)")

	ctx, interrupt := context.WithCancel(t.Context())
	c = &client.Client{URL: slow.URL + "/interrupted", Key: key}
	go func() { <-asked; interrupt() }()
	expect(t, fails(t, c, ctx), "was interrupted")
}

func TestClient_OverTLS(t *testing.T) {
	lender := lender(t)
	s := start(t, func(c *admin.Config) {
		c.TLS = &tls.Config{Certificates: lender.TLS.Certificates, MinVersion: tls.VersionTLS12}
	})
	plain, trusting := *s.Client, *s.Client
	expect(t, fails(t, &plain, t.Context()), "is not carstate's admin listener")

	trusting.URL = strings.Replace(s.URL, "http://", "https://", 1)
	trusting.HTTP = lender.Client()
	defer trusting.HTTP.CloseIdleConnections()
	if _, err := trusting.Tokens(t.Context()); err != nil {
		t.Errorf("the list of tokens over TLS: got %v, want no error", err)
	}
	stranger := trusting
	stranger.HTTP = s.HTTP
	expect(t, fails(t, &stranger, t.Context()), "could not be reached", "certificate")
}

func busyServer(t *testing.T) (s *service, leave chan struct{}, answered chan error) {
	t.Helper()
	s = start(t)
	entered, leave, answered := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s.store.Before = func(_ context.Context, method string) {
		if method == "Create source" {
			close(entered)
			<-leave
		}
	}
	go func() {
		_, err := s.AddSource(context.Background(), access.Credential{Name: "a", Vehicles: access.AllVehicles()})
		answered <- err
	}()
	<-entered
	return s, leave, answered
}

func TestShutdownWaits(t *testing.T) {
	s, leave, answered := busyServer(t)
	stopped := make(chan error, 1)
	go func() { stopped <- s.server.Shutdown(context.Background()) }()
	if err := <-s.served; err != nil {
		t.Fatalf("Serve: got %v, want no error", err)
	}
	expect(t, fails(t, s.Client, t.Context()), "no carstate answers")
	close(leave)
	if err := errors.Join(<-answered, <-stopped); err != nil {
		t.Errorf("the call and Shutdown: got %v, want no error", err)
	}
}

func TestShutdownGivesUp(t *testing.T) {
	s, leave, answered := busyServer(t)
	defer close(leave)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.server.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: got %v, want %v", err, context.Canceled)
	}
	if err := <-s.served; err != nil {
		t.Errorf("Serve: got %v, want no error", err)
	}
	if err := <-answered; err == nil {
		t.Error("the call: got an answer, want an error")
	} else {
		expect(t, err.Error(), "disconnected without an answer", "check before you retry")
	}
}
