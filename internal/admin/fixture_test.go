package admin_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/opstest"
	"example.org/carstate/internal/test/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// At the end of the test, log and audit must contain none of the secrets in passed.
type service struct {
	*client.Client
	store  *opstest.Store
	log    *testkit.Buffer
	clock  *testkit.Clock
	passed *testkit.Buffer
	server *admin.Server
	served chan error
}

// No caller may see its text.
var errDisk = errors.New("disk full")

func start(t *testing.T, changes ...func(*admin.Config)) *service {
	t.Helper()
	return startOps(t, func(*ops.Config) {}, changes...)
}

func startOps(t *testing.T, change func(*ops.Config), changes ...func(*admin.Config)) *service {
	t.Helper()
	key, hash := access.NewSecret(access.AdminKind)
	registry := prometheus.NewPedanticRegistry()
	s := &service{
		store:  opstest.New(),
		log:    new(testkit.Buffer),
		clock:  testkit.NewClock(noon),
		passed: new(testkit.Buffer),
	}
	fmt.Fprintln(s.passed, key)
	log := slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	operations := s.store.Config()
	operations.AdminKey, operations.Now, operations.Log = hash, s.clock.Now, log
	operations.Fleet, operations.Filled, operations.KeyDir = opstest.NewFleet().Table, well, t.TempDir()
	operations.RoadsDoubted = func(uint32) map[string]int64 { return nil }
	change(&operations)
	cfg := admin.Config{
		Ops:      ops.New(operations),
		Roads:    new(roadmap.Reader),
		Node:     new(settings),
		Console:  http.NotFoundHandler(),
		Alive:    well,
		Ready:    well,
		FeedAge:  func() (time.Duration, bool) { return 0, false },
		Newer:    func() []string { return nil },
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
	testkit.NoError(t, err)
	transport := &http.Transport{}
	s.Client = &client.Client{URL: "http://" + l.Addr().String(), Key: key, HTTP: &http.Client{
		Transport:     recorder{transport, s.passed},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	s.server, s.served = admin.New(cfg), make(chan error, 1)
	go func() {
		defer close(s.served)
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.served <- err
		}
	}()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		if err := s.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: got %v, want no error", err)
		}
		if err := <-s.served; err != nil {
			t.Errorf("Serve: got %v, want no error", err)
		}
		s.checkSecrets(t)
	})
	return s
}

func well() error { return nil }

type recorder struct {
	http.RoundTripper
	to io.Writer
}

func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	fmt.Fprintln(r.to, req.Header)
	resp, err := r.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, r.to), resp.Body}
	}
	return resp, err
}

func (s *service) checkSecrets(t *testing.T) {
	t.Helper()
	text := s.log.String() + fmt.Sprintf("%+v", s.store.Events())
	for _, secret := range regexp.MustCompile(`cs[a-z]+_([0-9A-Za-z]{16})`).FindAllStringSubmatch(s.passed.String(), -1) {
		if strings.Contains(text, secret[1]) {
			t.Error("the log and the audit: got a secret of a key or token, want none")
		}
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (s *service) do(t *testing.T, method, path, body string, change ...func(*http.Request)) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	testkit.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+s.Key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(req)
	}
	resp, err := s.HTTP.Do(req)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	testkit.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (s *service) want(
	t *testing.T, method, path, body string, status int, says string, change ...func(*http.Request),
) answer {
	t.Helper()
	got := s.do(t, method, path, body, change...)
	if got.status != status || !strings.Contains(got.body, says) {
		t.Errorf("%s %s %.100s: got %d %s, want %d with %q", method, path, body, got.status, got.body, status, says)
	}
	return got
}

func (a answer) lacks(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(a.body, text) {
		t.Errorf("got %d %s, want it without %q", a.status, a.body, text)
	}
}

// The group of pattern is a new secret, which verify must accept.
func (s *service) wantSecret(
	t *testing.T, verify func([]byte, time.Time) (*access.Grant, error), path, body string, status int, pattern string,
) {
	t.Helper()
	got := s.want(t, "POST", path, body, status, "")
	m := regexp.MustCompile("^" + pattern + "\n$").FindStringSubmatch(got.body)
	if m == nil {
		t.Fatalf("%s %s: got %s, want %s", path, body, got.body, pattern)
	}
	if _, err := verify([]byte(m[1]), noon); err != nil {
		t.Errorf("the secret that POST %s showed: got %v, want that it is accepted", path, err)
	}
	if h := got.header; h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("POST %s: got the header %v, want application/json and no-store", path, h)
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func refused(t *testing.T, what string, err error, status int, says string) {
	t.Helper()
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != status || !strings.Contains(e.Error(), says) {
		t.Errorf("%s: got %v, want status %d with %q", what, err, status, says)
	}
}

func newest(t *testing.T, c *client.Client, n int) []access.Event {
	t.Helper()
	list, err := c.SearchAudit(t.Context(), url.Values{"limit": {strconv.Itoa(n)}})
	if err != nil || len(list.Events) != n {
		t.Fatalf("got %d events, %v; want %d", len(list.Events), err, n)
	}
	return list.Events
}

func (s *service) issue(t *testing.T) wire.IssuedToken {
	t.Helper()
	return s.issueAs(t, access.Credential{Vehicles: access.VehicleSet("B", "A")})
}

// By default, the developer is Ada, and the operations are all.
func (s *service) issueAs(t *testing.T, r access.Credential) wire.IssuedToken {
	t.Helper()
	r.Developer, r.Operations = cmp.Or(r.Developer, "Ada"), cmp.Or(r.Operations, access.AllOperations)
	tok, err := s.IssueToken(t.Context(), r)
	testkit.NoError(t, err)
	return tok
}

func (s *service) add(t *testing.T, name string) wire.AddedSource {
	t.Helper()
	src, err := s.AddSource(t.Context(), access.Credential{Name: name, Vehicles: access.VehicleSet("A")})
	testkit.NoError(t, err)
	return src
}

func (s *service) addOperator(t *testing.T, name string) *client.Client {
	t.Helper()
	o, err := s.AddOperator(t.Context(), name, false)
	testkit.NoError(t, err)
	return &client.Client{URL: s.URL, Key: o.Key, HTTP: s.HTTP}
}
