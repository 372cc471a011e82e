package console

import (
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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"carstate/internal/access"
	"carstate/internal/fleet"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// memory does deeds on tables of its own, without an audit.
type memory struct {
	clock     *testkit.Clock
	tokens    access.Tokens
	sources   access.Sources
	operators access.Operators

	mu    sync.Mutex // guards what follows
	admin access.Hash
	did   []string // who did what
	known int      // requests with a session
	fail  error    // what every deed returns
}

// refused is a deed's error that has a status.
type refused struct{ error }

func (refused) Status() int { return http.StatusBadRequest }

var errDisk = errors.New("it could not be stored")

func (m *memory) note(by, what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, by+" "+what)
	return m.fail
}

func (m *memory) deeds() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := strings.Join(m.did, ", ")
	m.did = nil
	return all
}

func (m *memory) Identify(key string) (string, access.Hash, bool) {
	hash := access.HashOf(key)
	m.mu.Lock()
	isAdmin := hash == m.admin
	m.mu.Unlock()
	if isAdmin {
		return access.AdminName, hash, true
	}
	o, err := m.operators.Verify([]byte(key))
	return o.Name, hash, err == nil
}

func (m *memory) Counts(who string, hash access.Hash) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if who == access.AdminName {
		return hash == m.admin
	}
	o, ok := m.operators.Get(who)
	return ok && o.Removed.IsZero() && o.Hash == hash
}

func (m *memory) Known(context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known++
}

func (m *memory) requestsKnown() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.known
	m.known = 0
	return n
}

func (m *memory) IssueToken(_ context.Context, by string, r access.TokenRequest) (access.Token, string, error) {
	t, secret, err := access.Issue(r, m.clock.Now())
	if err != nil {
		return t, "", refused{err}
	}
	if err = m.note(by, "token.issue"); err == nil {
		m.tokens.Put(t)
	}
	return t, secret, err
}

func (m *memory) RotateToken(_ context.Context, by, id string, overlap time.Duration) (access.Token, string, error) {
	g, ok := m.tokens.Get(id)
	if !ok {
		return access.Token{}, "", access.ErrNotFound
	}
	t := g.Token
	secret, hash := access.NewSecret(t.Kind())
	err := errors.Join(t.Rotate(hash, overlap, m.clock.Now()), m.note(by, "token.rotate"))
	if err == nil {
		m.tokens.Put(t)
	}
	return t, secret, err
}

func (m *memory) RevokeToken(_ context.Context, by, id string) (access.Token, error) {
	g, ok := m.tokens.Get(id)
	if !ok {
		return access.Token{}, access.ErrNotFound
	}
	t := g.Token
	t.Revoked = m.clock.Now()
	err := m.note(by, "token.revoke")
	if err == nil {
		m.tokens.Put(t)
	}
	return t, err
}

func (m *memory) AddSource(_ context.Context, by, name string, v access.Vehicles, expires time.Time) (access.Source, string, error) {
	s, key, err := access.AddSource(name, v, expires, m.clock.Now())
	if err != nil {
		return s, "", refused{err}
	}
	if err = m.note(by, "source.add"); err == nil {
		m.sources.Put(s)
	}
	return s, key, err
}

func (m *memory) RotateSource(_ context.Context, by, name string, overlap time.Duration) (access.Source, string, error) {
	s, ok := m.sources.Get(name)
	if !ok {
		return access.Source{}, "", access.ErrNotFound
	}
	next := *s
	key, hash := access.NewSecret(access.SourceKind)
	err := errors.Join(next.Rotate(hash, overlap, m.clock.Now()), m.note(by, "source.rotate"))
	if err == nil {
		m.sources.Put(next)
	}
	return next, key, err
}

func (m *memory) RemoveSource(_ context.Context, by, name string) (access.Source, error) {
	s, ok := m.sources.Get(name)
	if !ok {
		return access.Source{}, access.ErrNotFound
	}
	next := *s
	next.Removed = m.clock.Now()
	err := m.note(by, "source.remove")
	if err == nil {
		m.sources.Put(next)
	}
	return next, err
}

func (m *memory) AddOperator(_ context.Context, by, name string) (access.Operator, string, error) {
	o, key, err := access.AddOperator(name, m.clock.Now())
	if err != nil {
		return o, "", refused{err}
	}
	if err = m.note(by, "operator.add"); err == nil {
		m.operators.Put(o)
	}
	return o, key, err
}

func (m *memory) RotateOperator(_ context.Context, by, name string) (access.Operator, string, error) {
	o, ok := m.operators.Get(name)
	if !ok {
		return o, "", access.ErrNotFound
	}
	key, hash := access.NewSecret(access.OperatorKind)
	o.Rotate(hash, m.clock.Now())
	m.operators.Put(o)
	return o, key, m.note(by, "operator.rotate")
}

func (m *memory) RemoveOperator(_ context.Context, by, name string) (access.Operator, error) {
	o, ok := m.operators.Get(name)
	if !ok {
		return o, access.ErrNotFound
	}
	o.Removed = m.clock.Now()
	m.operators.Put(o)
	return o, m.note(by, "operator.remove")
}

func (m *memory) RotateAdminKey(_ context.Context, by string) error {
	err := m.note(by, "admin-key.rotate")
	m.mu.Lock()
	defer m.mu.Unlock()
	_, m.admin = access.NewSecret(access.AdminKind)
	return err
}

func (m *memory) Forget(_ context.Context, by string, _ vehicle.ID) (access.ForgetReceipt, error) {
	return access.ForgetReceipt{Format: access.ReceiptFormat}, m.note(by, "vehicle.forget")
}

// fixture is a console on a real listener, and a browser without script.
type fixture struct {
	t *testing.T
	*memory
	console *Console
	monitor *Monitor
	fleet   *fleet.Table
	states  map[vehicle.ID]vehicle.State // guarded by memory.mu
	key     string                       // the admin's
	log     *testkit.Buffer
	server  *httptest.Server
	browser *http.Client
}

func newFixture(t *testing.T, changes ...func(*Config)) *fixture {
	t.Helper()
	c := testkit.NewClock(noon)
	f := &fixture{t: t, memory: &memory{clock: c}, fleet: fleet.New(), states: make(map[vehicle.ID]vehicle.State), log: new(testkit.Buffer)}
	f.key, f.admin = access.NewSecret(access.AdminKind)
	registry := prometheus.NewPedanticRegistry()
	f.monitor = NewMonitor(f.fleet, registry, 5*time.Minute, c.Now)
	cfg := Config{
		Deeds: f.memory, Monitor: f.monitor, Tokens: &f.tokens, Sources: &f.sources, Operators: &f.operators,
		State: func(_ context.Context, id vehicle.ID) (vehicle.State, bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			s, ok := f.states[id]
			return s, ok, nil
		},
		Recent: func(context.Context, vehicle.ID, int) ([]vehicle.Sample, time.Time, bool, error) {
			return nil, noon, true, nil
		},
		Audit: func(context.Context, uint64, int) ([]access.Event, uint64, error) { return nil, 0, nil },
		Ready: func() error { return nil }, Writable: func() error { return nil },
		MaxAge: 5 * time.Minute, QueryURL: "http://127.0.0.1:8080", LiveEvery: time.Millisecond,
		Registry: registry, Log: slog.New(slog.NewTextHandler(f.log, nil)), Now: c.Now,
	}
	for _, change := range changes {
		change(&cfg)
	}
	f.console = New(cfg)
	f.server = httptest.NewServer(f.console)
	t.Cleanup(func() {
		f.console.Close()
		f.server.Close()
	})
	f.browser = f.anotherBrowser()
	return f
}

func (f *fixture) anotherBrowser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	client := *f.server.Client()
	client.Jar = jar
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (f *fixture) read(resp *http.Response, err error) answer {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

func (f *fixture) get(path string) answer {
	f.t.Helper()
	return f.read(f.browser.Get(f.server.URL + path))
}

// post sends a form; fields come in pairs.
func (f *fixture) post(path string, fields ...string) answer {
	f.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return f.read(f.browser.PostForm(f.server.URL+path, form))
}

func (f *fixture) logIn(key string) {
	f.t.Helper()
	if a := f.post("/login", "key", key, "next", "/"); a.status != http.StatusSeeOther || a.header.Get("Location") != "/" {
		f.t.Fatalf("login: %d to %q", a.status, a.header.Get("Location"))
	}
}

// want fails unless the answer has the status and holds all texts.
func (f *fixture) want(a answer, status int, texts ...string) {
	f.t.Helper()
	if a.status != status {
		f.t.Errorf("HTTP %d, not %d", a.status, status)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			f.t.Errorf("%q is not in the page:\n%s", text, a.body)
		}
	}
}

// report puts a state into all that a console sees of a vehicle.
func (f *fixture) report(id vehicle.ID, s vehicle.State) {
	f.mu.Lock()
	f.states[id] = s
	f.mu.Unlock()
	f.fleet.Put(id, fleet.Answer{Driving: s.Driving(), Throttle: s.Throttle()})
	f.monitor.Put(id, s)
}

// jammed is the state of a car that has been in a jam for so long at noon.
func jammed(since time.Duration) vehicle.State {
	at := vehicle.At(noon)
	s := vehicle.State{Time: at, Pace: vehicle.TrafficJam}
	s.Latest[vehicle.Speed] = vehicle.Reading{Value: 3, Time: at}
	s.Traffic.Start, s.Traffic.Changed, s.Traffic.Share, s.Traffic.FreeKmh = at.Add(-time.Hour), at.Add(-since), 0.2, 46
	return s
}
