package query_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// Not a whole second, so that a wrong rounding is found.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 750e6, time.UTC)

const (
	maxAge = 5 * time.Minute

	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

type fixture struct {
	query.Config
	// By the placeholders of scripts.
	secrets map[string]string
	clock   *testkit.Clock
	metrics *prometheus.Registry
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{secrets: map[string]string{}, clock: testkit.NewClock(noon), metrics: prometheus.NewRegistry()}
	f.Config = query.Config{
		Tokens:   new(access.Tokens),
		Fleet:    fleet.New(),
		Ready:    func(time.Time) error { return nil },
		Log:      slog.New(slog.DiscardHandler),
		Registry: f.metrics,
		MaxAge:   maxAge,
		Now:      f.clock.Now,
	}
	at := func(ago time.Duration) signal.UnixMilli { return signal.At(noon.Add(-ago)) }
	fresh := 2 * time.Second
	put := func(id vehicle.ID, d driving.State, ago time.Duration) {
		f.Fleet.Put(id, fleet.Answer{
			Driving:  vehicle.DrivingVerdict{State: d, Time: at(ago)},
			Throttle: vehicle.ThrottleVerdict{System: throttle.Normal, Time: at(ago)},
		})
	}
	put("CarNormal", driving.Normal, fresh)
	put("CarSlow", driving.Slow, fresh)
	put("CarJam", driving.Jam, fresh)
	put("CarOld", driving.Jam, maxAge+time.Millisecond)
	put("CarLast", driving.Jam, maxAge)
	put("CarAhead", driving.Jam, -20*time.Second)
	f.Fleet.Put("CarParked", fleet.Answer{
		Driving: vehicle.DrivingVerdict{NotDriving: true, Time: at(fresh)},
	})
	f.Fleet.Put("CarFaulty", fleet.Answer{
		Driving:  vehicle.DrivingVerdict{State: driving.Normal, Time: at(fresh)},
		Throttle: vehicle.ThrottleVerdict{System: throttle.Anomaly, Time: at(90 * time.Second)},
	})

	// A sandbox token must not see a real car of a reserved name.
	put(access.SandboxJam, driving.Normal, fresh)
	put(access.SandboxUnknown, driving.Slow, fresh)

	all := access.AllVehicles()
	f.issue(t, "TOKEN", access.Credential{Vehicles: all})
	f.issue(t, "ONLY_NORMAL", access.Credential{Vehicles: access.VehicleSet("CarNormal")})
	f.issue(t, "DRIVING", access.Credential{Vehicles: all, Operations: access.CarDrivingState})
	f.issue(t, "THROTTLE", access.Credential{Vehicles: all, Operations: access.ThrottleSystem,
		Rate: access.Rate{Calls: 5, Window: time.Second}})
	f.issue(t, "TWO_A_MINUTE", access.Credential{Vehicles: all, Rate: access.Rate{Calls: 2, Window: time.Minute}})
	f.issue(t, "TEN_AN_HOUR", access.Credential{Vehicles: all, Rate: access.Rate{Calls: 10, Window: time.Hour}})
	f.issue(t, "HUNDRED_A_SECOND", access.Credential{Vehicles: all, Rate: access.Rate{Calls: 100, Window: time.Second}})
	f.issue(t, "EXPIRED", access.Credential{Vehicles: all, Expires: noon})
	revoked := f.issue(t, "REVOKED", access.Credential{Vehicles: all})
	revoked.Ended = noon.Add(-time.Hour)
	f.Tokens.Put(revoked)

	f.issue(t, "SANDBOX", access.Credential{Kind: access.SandboxKind})
	f.issue(t, "SANDBOX_THROTTLE", access.Credential{Kind: access.SandboxKind, Operations: access.ThrottleSystem})
	f.issue(t, "SANDBOX_TWO_A_MINUTE", access.Credential{Kind: access.SandboxKind,
		Rate: access.Rate{Calls: 2, Window: time.Minute}})
	f.rotate(t, f.issue(t, "REPLACED", access.Credential{Vehicles: all}), noon.Add(-time.Minute))
	f.rotate(t, f.issue(t, "OUTGOING", access.Credential{Vehicles: all}), noon.Add(-time.Minute+time.Millisecond))

	good := f.secrets["TOKEN"]
	f.secrets["UNKNOWN"], _ = access.NewSecret(access.TokenKind)
	f.secrets["UNKNOWN_SANDBOX"], _ = access.NewSecret(access.SandboxKind)
	f.secrets["MISTYPED"] = good[:len(good)-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(good, "0")]
	f.secrets["CUT"] = good[:20]
	f.secrets["SOURCE_KEY"], _ = access.NewSecret(access.SourceKind)
	f.secrets["ADMIN_KEY"], _ = access.NewSecret(access.AdminKind)
	f.secrets["TOKEN_ID"] = revoked.Name
	return f
}

// A call of overload leaves room for one connection.
func (f *fixture) limit(t *testing.T) (overload func()) {
	probe := new(listen.Probe)
	f.Limit = listen.NewLimit(probe, listen.Bounds{Least: 1, Idle: time.Hour})
	return func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- probe.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
		testkit.Await(t, "the overload begins", f.Limit.Active)
	}
}

func (f *fixture) issue(t testing.TB, name string, r access.Credential) access.Credential {
	t.Helper()
	r.Developer, r.Kind = name, cmp.Or(r.Kind, access.TokenKind)
	if r.Operations == 0 {
		r.Operations = access.AllOperations
	}
	tok, secret, err := access.New(r, noon.Add(-24*time.Hour))
	testkit.NoError(t, err)
	f.Tokens.Put(tok)
	f.secrets[name] = secret
	return tok
}

// The old secret is valid for a minute.
func (f *fixture) rotate(t testing.TB, tok access.Credential, at time.Time) {
	t.Helper()
	_, hash := access.NewSecret(access.TokenKind)
	testkit.NoError(t, tok.Rotate(hash, time.Minute, at))
	f.Tokens.Put(tok)
}

type running struct {
	*http1.Server
	addr string
	done chan error // the result of Serve
}

func start(t testing.TB, c query.Config) *running {
	t.Helper()
	return startOn(t, query.New(c), testkit.Listen(t))
}

func startOn(t testing.TB, s *http1.Server, ln net.Listener) *running {
	t.Helper()
	r := &running{Server: s, addr: ln.Addr().String(), done: make(chan error, 1)}
	go func() { r.done <- s.Serve(ln) }()
	t.Cleanup(func() { r.shutdown(t) })
	return r
}

// It may take 10 s.
func (r *running) shutdown(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Errorf("the shutdown: got %v, want no error", err)
	}
}

type peer struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

func newPeer(t testing.TB, c net.Conn) *peer { return &peer{c, t, bufio.NewReader(c)} }

func (r *running) dial(t testing.TB) *peer {
	t.Helper()
	return newPeer(t, testkit.Dial(t, r.addr))
}

func (r *running) dialTLS(t testing.TB, c *tls.Config) *peer {
	t.Helper()
	return newPeer(t, tls.Client(r.dial(t), c))
}

func (p *peer) Read(b []byte) (int, error) { return p.in.Read(b) }

func (p *peer) ask(request string) answerRead {
	p.t.Helper()
	io.WriteString(p, request)
	return readAnswer(p.t, p.in, strings.HasPrefix(request, "HEAD "))
}

func (f *fixture) about(p *peer, path, vid, token string) answerRead {
	p.t.Helper()
	return p.ask(get(path + "?vid=" + vid + "&access_token=" + f.secrets[token]))
}

func get(target string, headers ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n"
}

func document(t testing.TB, c query.Config, path string, headers ...string) string {
	t.Helper()
	c.Registry = prometheus.NewRegistry()
	return start(t, c).dial(t).ask(get(path, headers...)).body
}

func (p *peer) wants(status string, parts ...string) {
	p.t.Helper()
	readAnswer(p.t, p.in, false).wants(p.t, status, parts...)
}

func (a answerRead) wants(t testing.TB, status string, parts ...string) {
	t.Helper()
	lacks := func(part string) bool { return !strings.Contains(a.raw, part) }
	if a.status != "HTTP/1.1 "+status || slices.ContainsFunc(parts, lacks) {
		t.Errorf("got %s, want %s with %q", a.raw, status, parts)
	}
}

func (p *peer) wantsEnd() {
	p.t.Helper()
	if rest, err := io.ReadAll(p); err != nil || len(rest) > 0 {
		p.t.Errorf("got %q, %v, want the end of the connection", rest, err)
	}
}

func (f *fixture) useTLS(t *testing.T) *tls.Config {
	t.Helper()
	certFile, keyFile, roots := testkit.Certificate(t)
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	testkit.NoError(t, err)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
}

func (f *fixture) line(vid string) string {
	return "GET " + drivingPath + "?access_token=" + f.secrets["TOKEN"] + "&vid=" + vid + " HTTP/1.1\r\n"
}

func (f *fixture) query(vid string) string { return f.line(vid) + "Host: x\r\n\r\n" }

func (f *fixture) queryAs(token string) string {
	return strings.Replace(f.query("CarJam"), f.secrets["TOKEN"], f.secrets[token], 1)
}
