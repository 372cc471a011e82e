package admin_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/test/testkit"
)

func withoutKey(r *http.Request) { r.Header.Del("Authorization") }

func TestHealth_ShowsTheError(t *testing.T) {
	secret, _ := access.NewSecret(access.TokenKind)
	s := start(t, func(c *admin.Config) {
		c.Alive = func() error { return errors.New("the engine has stopped") }
		c.Ready = func() error {
			return errors.New("the fleet table\n is\tcatching up " + secret + strings.Repeat(" ü", 500))
		}
	})
	if got := s.do(t, "GET", "/healthz", "", withoutKey); got.status != 503 || got.body != "the engine has stopped\n" {
		t.Errorf("/healthz: got %d %q, want 503, the engine has stopped", got.status, got.body)
	}
	got := s.do(t, "GET", "/readyz", "", withoutKey)
	if got.status != 503 || !strings.HasPrefix(got.body, "the fleet table; is catching up CST… ü") {
		t.Errorf("/readyz: got %d %q, want 503, the fleet table is catching up", got.status, got.body)
	}
	if strings.Count(got.body, "\n") != 1 || len(got.body) > 410 {
		t.Errorf("/readyz: got %q, want one line of at most 410 bytes", got.body)
	}
}

func TestReady_PerJob(t *testing.T) {
	s := start(t, func(c *admin.Config) {
		no := func() error { return errors.New("nothing is stored") }
		c.Ready, c.ReadyFor = no, map[string]func() error{"query": func() error { return nil }, "ingest": no}
		c.FeedAge = func() (time.Duration, bool) { return 1234 * time.Millisecond, true }
		c.Console = http.RedirectHandler("/", http.StatusFound)
	})
	for path, want := range map[string]string{
		"/readyz": "503 nothing is stored; feed age 1.2 s", "/readyz/ingest": "503 nothing is stored; feed age 1.2 s",
		"/readyz/query": "200 ready; feed age 1.2 s", "/healthz": "200 alive",
	} {
		// Probes may use any host name.
		if got := s.do(t, "GET", path, "", withoutKey, func(r *http.Request) {
			r.Host = "node-1"
		}); fmt.Sprint(got.status, " ", got.body) != want+"\n" {
			t.Errorf("%s: got %d %q, want %s", path, got.status, got.body, want)
		}
	}
	for _, path := range []string{"/readyz/", "/readyz/x", "/readyz/query/x"} {
		s.want(t, "GET", path, "", 404, "", withoutKey)
	}
}

func TestGuard_WaitsForTheTables(t *testing.T) {
	testkit.Slow(t, "it waits twice for tables that are not read")
	t.Parallel()
	filled := make(chan struct{})
	s := start(t, func(c *admin.Config) { c.Started = filled })
	s.want(t, "GET", "/readyz", "", 200, "", withoutKey)
	for _, call := range []string{"POST /v1/tokens/x/revoke", "GET /v1/sources"} {
		method, path, _ := strings.Cut(call, " ")
		if got := s.want(t, method, path, "", 503, "try again"); got.header.Get("Retry-After") != "1" {
			t.Errorf("%s: got Retry-After %q, want 1", call, got.header.Get("Retry-After"))
		}
	}
	go close(filled)
	s.want(t, "POST", "/v1/tokens/x/revoke", "", 404, "")
}

func TestMetrics_NeedNoKey(t *testing.T) {
	s := start(t)
	tok := s.issue(t)
	s.do(t, "GET", "/v1/tokens/"+tok.ID, "")
	s.do(t, "GET", "/v1/tokens/nobody", "")
	s.do(t, "GET", "/v1/tokens", "", withoutKey)
	got := s.do(t, "GET", "/metrics", "", withoutKey)
	for _, line := range []string{
		`carstate_admin_calls_total{call="token.issue",code="201"} 1`,
		`carstate_admin_calls_total{call="token.show",code="200"} 1`,
		`carstate_admin_calls_total{call="token.show",code="404"} 1`,
		`carstate_admin_calls_total{call="token.list",code="401"} 1`,
		`carstate_admin_wrong_keys_total 1`,
		`carstate_admin_call_duration_seconds_count{call="token.show"} 2`,
		`,version="v0-test"} 1`,
	} {
		if !strings.Contains(got.body, line+"\n") {
			t.Errorf("/metrics: got no line %s, want it", line)
		}
	}
	for _, private := range []string{tok.ID, "Ada", "nobody", "cst_"} {
		got.lacks(t, private)
	}
}

// While the clock stands still, all but five requests and the first compressed one get the cached
// text.
func TestMetricsKeepAScrapersPlace(t *testing.T) {
	var gathered atomic.Int64
	s := start(t, func(c *admin.Config) {
		c.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gathered"}, func() float64 {
			return float64(gathered.Add(1))
		}))
	})
	var greedy sync.WaitGroup
	for range 16 {
		greedy.Go(func() {
			for range 20 {
				s.want(t, "GET", "/metrics", "", http.StatusOK, "\ngathered ", withoutKey)
			}
		})
	}
	greedy.Wait()
	if n := gathered.Load(); n > 6 {
		t.Errorf("320 requests in no time: got the metrics gathered %d times, want at most 6", n)
	}
	for range 3 {
		s.clock.Advance(time.Second)
		want := fmt.Sprintf("\ngathered %d\n", gathered.Load()+1)
		got := s.want(t, "GET", "/metrics", "", http.StatusOK, want, header("Accept-Encoding", "identity"))
		if got.header.Get("Content-Encoding") != "" {
			t.Errorf("/metrics for identity: got the header %v, want no Content-Encoding", got.header)
		}
	}
	got := s.do(t, "GET", "/metrics", "", header("Accept-Encoding", "gzip"))
	if got.header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(got.body, "\x1f\x8b") {
		t.Errorf("/metrics for gzip: got the header %v, want Content-Encoding gzip", got.header)
	}
}

type broken struct{}

func (broken) Describe(c chan<- *prometheus.Desc) {
	c <- prometheus.NewDesc("broken", "", nil, nil)
}

func (broken) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), errors.New("cannot be read"))
}

func TestMetricsWithABrokenCollector(t *testing.T) {
	s := start(t, func(c *admin.Config) { c.Registry.MustRegister(broken{}) })
	s.want(t, "GET", "/metrics", "", 200, "carstate_build_info")
	if !strings.Contains(s.log.String(), "cannot be read") {
		t.Errorf("the log: got %s, want that a metric cannot be read", s.log)
	}
}

func TestProbesOnly(t *testing.T) {
	s := start(t, func(c *admin.Config) {
		*c = admin.Config{
			Gatherer: c.Gatherer, Registry: c.Registry, Log: c.Log, Version: c.Version,
			Ready: func() error { return errors.New("not yet") },
			Alive: well, FeedAge: c.FeedAge, Newer: c.Newer,
		}
	})
	for path, want := range map[string]string{"/healthz": "200 alive\n", "/readyz": "503 not yet\n"} {
		if got := s.do(t, "GET", path, ""); fmt.Sprint(got.status, " ", got.body) != want {
			t.Errorf("%s: got %d %q, want %q", path, got.status, got.body, want)
		}
	}
	s.want(t, "GET", "/metrics", "", 200, `,version="v0-test"} 1`)
	for _, call := range []string{"GET /", "GET /login", "POST /login", "GET /v1/tokens", "POST /v1/tokens",
		"GET /v1/backup", "POST /v1/admin-key/rotate", "GET /v1"} {
		method, path, _ := strings.Cut(call, " ")
		for _, change := range []func(*http.Request){withoutKey, func(*http.Request) {},
			header("Authorization", "Bearer ")} {
			s.want(t, method, path, "", 404, "", change)
		}
	}
}
