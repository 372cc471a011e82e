package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"carstate/internal/access"
	"carstate/internal/admin"
	"carstate/internal/admin/client"
	"carstate/internal/admin/wire"
	"carstate/internal/ops"
	"carstate/internal/ops/opstest"
	"carstate/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// service is an admin server on a real listener, with its dependencies. At the end of the test, its
// log and its audit must contain none of the secrets that it handled.
type service struct {
	*client.Client
	store *opstest.Store
	log   *testkit.Buffer
	clock *testkit.Clock

	mu      sync.Mutex // guards secrets
	secrets []string
}

// errDisk is an error of the store whose text must not be shown to a caller.
var errDisk = errors.New("disk full")

func start(t *testing.T, changes ...func(*admin.Config)) *service {
	t.Helper()
	return startOps(t, func(*ops.Config) {}, changes...)
}

// startOps is like start; the parameter change may modify the configuration of the operations.
func startOps(t *testing.T, change func(*ops.Config), changes ...func(*admin.Config)) *service {
	t.Helper()
	key, hash := access.NewSecret(access.AdminKind)
	registry := prometheus.NewPedanticRegistry()
	s := &service{
		store: opstest.New(),
		log:   new(testkit.Buffer),
		clock: testkit.NewClock(noon),
	}
	s.keepFromLogs(key)
	log := slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	operations := s.store.Config()
	operations.AdminKey, operations.Now, operations.Log = hash, s.clock.Now, log
	change(&operations)
	cfg := admin.Config{
		Ops:      ops.New(operations),
		Gatherer: registry,
		Registry: registry,
		Now:      s.clock.Now,
		Log:      log,
		Version:  "v0-test",
	}
	for _, change := range changes {
		change(&cfg)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	s.Client = &client.Client{URL: "http://" + l.Addr().String(), Key: key, HTTP: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	server, served := admin.New(cfg), make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		s.checkSecrets(t)
	})
	return s
}

// keepFromLogs registers a secret that must be neither in the log nor in the audit.
func (s *service) keepFromLogs(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = append(s.secrets, secret)
}

func (s *service) checkSecrets(t *testing.T) {
	t.Helper()
	text := s.log.String() + fmt.Sprintf("%+v", s.store.Events())
	for _, secret := range s.secrets {
		if strings.Contains(text, secret[4:20]) {
			t.Errorf("a secret is in the log or the audit")
		}
	}
}

// answer is the response to one request.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request with the admin key. The functions in change may modify the request.
func (s *service) do(t *testing.T, method, path, body string, change ...func(*http.Request)) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(req)
	}
	resp, err := s.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// newest returns the newest events of the audit, newest first.
func newest(t *testing.T, c *client.Client, limit int) ([]access.Event, error) {
	t.Helper()
	list, err := c.SearchAudit(t.Context(), url.Values{"limit": {strconv.Itoa(limit)}})
	return list.Events, err
}

// issue issues a token for the vehicles A and B.
func (s *service) issue(t *testing.T) wire.IssuedToken {
	t.Helper()
	tok, err := s.IssueToken(t.Context(), access.Request{
		Developer: "Ada", Operations: access.AllOperations, Vehicles: access.VehicleSet("B", "A"),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.keepFromLogs(tok.AccessToken)
	return tok
}

// add adds a source for the vehicle A.
func (s *service) add(t *testing.T, name string) wire.AddedSource {
	t.Helper()
	src, err := s.AddSource(t.Context(), access.Request{Name: name, Vehicles: access.VehicleSet("A")})
	if err != nil {
		t.Fatal(err)
	}
	s.keepFromLogs(src.Key)
	return src
}
