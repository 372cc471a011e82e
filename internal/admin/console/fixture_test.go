package console_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/opstest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

var errDisk = errors.New("disk full")

type fixture struct {
	t *testing.T
	*ops.Operations
	store   *opstest.Store
	clock   *testkit.Clock
	console *console.Console
	monitor *console.Monitor
	fleet   *fleet.Table
	key     string
	log     *testkit.Buffer
	server  *httptest.Server
	browser *http.Client
	metrics *prometheus.Registry
	roots   map[*http.Client]string
	known   atomic.Int64

	mu     sync.Mutex // guards states
	states map[vehicle.ID]vehicle.State
	seen   int
}

func (f *fixture) did() string {
	var did []string
	all := f.store.Events()
	for _, e := range all[f.seen:] {
		did = append(did, e.Actor+" "+e.Action)
	}
	f.seen = len(all)
	return strings.Join(did, ", ")
}

func newFixture(t *testing.T, changes ...func(*console.Config)) *fixture {
	t.Helper()
	return newFixtureOn(t, func(*ops.Config) {}, changes...)
}

func loggedIn(t *testing.T, changes ...func(*console.Config)) *fixture {
	t.Helper()
	f := newFixture(t, changes...)
	f.logIn(f.key)
	return f
}

func newFixtureOn(t *testing.T, change func(*ops.Config), changes ...func(*console.Config)) *fixture {
	t.Helper()
	c := testkit.NewClock(noon)
	f := &fixture{
		t: t, store: opstest.New(), clock: c, fleet: fleet.New(), states: make(map[vehicle.ID]vehicle.State),
		log: new(testkit.Buffer), metrics: prometheus.NewPedanticRegistry(), roots: make(map[*http.Client]string),
	}
	f.monitor = console.NewMonitor(f.fleet, f.metrics, 5*time.Minute, c.Now)
	log := slog.New(slog.NewTextHandler(f.log, nil))
	f.fleet.KeepNames(1 << 20)
	operations := f.store.Config()
	operations.Fleet, operations.Filled = f.fleet, func() error { return nil }
	operations.RoadsDoubted = func(uint32) map[string]int64 { return nil }
	operations.State = func(_ context.Context, id vehicle.ID) (vehicle.State, bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		s, ok := f.states[id]
		return s, ok, nil
	}
	operations.MaxAge, operations.Now, operations.Log = 5*time.Minute, c.Now, log
	operations.KeyDir = t.TempDir()
	var err error
	f.key, err = ops.LoadOrCreateKey(operations.KeyDir)
	testkit.NoError(t, err)
	operations.AdminKey = access.HashOf(f.key)
	change(&operations)
	f.Operations = ops.New(operations)
	cfg := console.Config{
		Ops: f.Operations, Monitor: f.monitor, Known: func(context.Context) { f.known.Add(1) },
		Recent: func(context.Context, vehicle.ID, int) (store.Recent, error) {
			return store.Recent{Since: noon, All: true}, nil
		},
		Ready: func() error { return nil }, Writable: func() error { return nil },
		Roads: new(roadmap.Reader), QueryURL: "http://127.0.0.1:8080", LiveEvery: time.Millisecond,
		Registry: f.metrics, Log: log, Now: c.Now,
	}
	for _, change := range changes {
		change(&cfg)
	}
	f.console = console.New(cfg)
	f.server = httptest.NewServer(f.console)
	t.Cleanup(func() {
		f.Operations.Close()
		f.server.Close()
	})
	f.browser = f.anotherBrowser()
	return f
}

func (f *fixture) anotherBrowser() *http.Client {
	jar, err := cookiejar.New(nil)
	testkit.NoError(f.t, err)
	client := *f.server.Client()
	client.Jar = jar
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

type answer struct {
	asked  string
	status int
	header http.Header
	body   string
}

func (f *fixture) read(resp *http.Response, err error) answer {
	f.t.Helper()
	testkit.NoError(f.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testkit.NoError(f.t, err)
	return answer{resp.Request.Method + " " + resp.Request.URL.RequestURI(), resp.StatusCode, resp.Header, string(body)}
}

func (f *fixture) at(path string) string {
	if path == "/login" || strings.HasPrefix(path, "/assets/") {
		return f.server.URL + path
	}
	root, query, _ := strings.Cut(path, "?")
	if f.roots[f.browser] != "" && root == "/" {
		path = "?" + query
	}
	return f.server.URL + f.roots[f.browser] + path
}

func (f *fixture) get(path string) answer {
	f.t.Helper()
	return f.read(f.browser.Get(f.at(path)))
}

// fields has names and values in turn.
func (f *fixture) post(path string, fields ...string) answer {
	f.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return f.read(f.browser.PostForm(f.at(path), form))
}

func (f *fixture) logIn(key string) {
	f.t.Helper()
	a := f.post("/login", "key", key, "next", "/")
	root := a.header.Get("Location")
	if a.status != http.StatusSeeOther || !strings.HasPrefix(root, "/s/") {
		f.t.Fatalf("the login: got %d to %q, want 303 to /s/", a.status, root)
	}
	f.roots[f.browser] = root
}

func (a answer) leadsTo() string {
	_, page, _ := strings.Cut(strings.TrimPrefix(a.header.Get("Location"), "/s/"), "/")
	return "/" + page
}

func (f *fixture) want(a answer, status int, texts ...string) {
	f.t.Helper()
	if a.status != status {
		f.t.Errorf("%s: got HTTP %d, want %d", a.asked, a.status, status)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			f.t.Errorf("%s: got a page without %q, want it there:\n%s", a.asked, text, a.body)
		}
	}
}

func (f *fixture) lacks(wrong string, a answer, texts ...string) {
	f.t.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			f.t.Errorf("%s: %s: got %q, want a page without it:\n%s", a.asked, wrong, text, a.body)
		}
	}
}

func (f *fixture) readMetrics() {
	ctx, cancel := context.WithCancel(f.t.Context())
	cancel()
	f.monitor.Run(ctx)
}

func (f *fixture) livePages() float64 {
	return testkit.Metric(f.t, f.metrics, "carstate_console_live_pages")
}

// The zero state means that the vehicle was forgotten.
func (f *fixture) report(id vehicle.ID, s vehicle.State) {
	f.mu.Lock()
	f.states[id] = s
	f.mu.Unlock()
	f.fleet.Put(id, fleet.Answer{Driving: s.Driving(), Throttle: s.Throttle()})
	a := store.AnswerOf(&s)
	f.monitor.Put(id, &a)
}

func (f *fixture) create(r access.Credential) (access.Credential, string) {
	f.t.Helper()
	if r.Kind = cmp.Or(r.Kind, access.TokenKind); r.Kind == access.TokenKind || r.Kind == access.SandboxKind {
		r.Developer, r.Operations = cmp.Or(r.Developer, "Ada"), cmp.Or(r.Operations, access.AllOperations)
	}
	c, secret, err := f.Create(f.t.Context(), access.Actor{Name: "x", Admin: true}, r)
	testkit.NoError(f.t, err)
	return c, secret
}

// At noon.
func jammed(since time.Duration) vehicle.State {
	at := signal.At(noon)
	s := vehicle.State{Time: at, Pace: driving.Jam}
	s.Latest[signal.Speed] = signal.Reading{Value: 3, Time: at}
	s.Traffic.Kmh, s.Traffic.At = 3, at
	s.Traffic.Start, s.Traffic.Changed, s.Traffic.Share, s.Traffic.FreeKmh = at.Add(-time.Hour), at.Add(-since), 0.2, 46
	return s
}
