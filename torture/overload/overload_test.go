package overload

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestRecovered(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const normal = 100 * time.Millisecond
	for name, c := range map[string]struct {
		spoil func(i int, f *fate)
		want  time.Duration
	}{
		"at once": {func(int, *fate) {}, 0},
		"one failed": {func(i int, f *fate) {
			if i == 150 {
				f.good, f.took = false, time.Second
			}
		}, 2500 * time.Millisecond},
		"one was slow": {func(i int, f *fate) {
			if i == 150 {
				f.took = time.Second
			}
		}, 0},
		"slow for half a second": {func(i int, f *fate) {
			if i < 50 {
				f.took = 200 * time.Millisecond
			}
		}, 680 * time.Millisecond},
	} {
		var all []fate
		for i := range 400 {
			f := fate{due: began.Add(time.Duration(i) * 10 * time.Millisecond), good: true, took: time.Millisecond}
			c.spoil(i, &f)
			all = append(all, f)
		}
		if got := recovered(all, began, normal); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Users connect where no connection is free, keep it, and count what they get.
func TestUsers(t *testing.T) {
	var connections, later atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/1":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/2":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/3":
			later.Add(1)
			w.Header().Set("Connection", "close")
		}
		_, _ = io.WriteString(w, "yes")
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	path := "/0"
	c := &crowd{
		addr:    strings.TrimPrefix(s.URL, "http://"),
		request: func(b []byte, _ int) []byte { return append(b, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"...) },
		good:    func(status int, body []byte) bool { return status == 200 && string(body) == "yes" },
	}
	counted := 0
	c.counting = func() { counted++ }
	r := c.closedLoop(t.Context(), 3, 10*time.Millisecond, 100*time.Millisecond)
	if counted != 2 || r.good == 0 || r.good+r.failed != r.due || connections.Load() < 3 || r.wrong != nil {
		t.Errorf("closed loop: %+v on %d connections", r, connections.Load())
	}
	for p, is := range map[string]func(r result) bool{
		"/0": func(r result) bool { return r.good > 0 && r.wrong == nil && len(r.took) == r.good && r.p(0.5) > 0 },
		"/1": func(r result) bool { return r.refused > 0 && r.good == 0 && r.wrong == nil },
		"/2": func(r result) bool { return r.wrong != nil }, // it does not say when to come back
		"/3": func(r result) bool { return r.good > 0 && later.Load() > 0 },
	} {
		path = p
		var r result
		for try := 0; r.due == 0 && try < 4; try++ { // a machine that stood still offers nothing
			r = c.openLoop(t.Context(), 200, 50*time.Millisecond, 150*time.Millisecond)
			c.leave()
		}
		if !is(r) || r.due < 1 || r.due > 40 {
			t.Errorf("%s: %+v", p, r)
		}
	}
	s.Close()
	r = c.openLoop(t.Context(), 100, 0, 50*time.Millisecond)
	c.leave()
	if r.failed != r.due || r.due == 0 {
		t.Errorf("with nobody there: %+v", r)
	}
}
