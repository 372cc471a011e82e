package ingest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/test/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startHTTP(t testing.TB, f *fixture) (h *ingest.HTTP, url string) {
	t.Helper()
	return startHTTPOn(t, f, testkit.Listen(t))
}

func startHTTPOn(t testing.TB, f *fixture, l net.Listener) (h *ingest.HTTP, url string) {
	t.Helper()
	h = ingest.NewHTTP(f.Config)
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := h.Shutdown(shutdownContext(t)); err != nil {
			t.Errorf("Shutdown: got %v, want no error", err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: got %v, want %v", err, http.ErrServerClosed)
		}
	})
	return h, "http://" + l.Addr().String() + telemetryPath
}

type request struct {
	method, path string // default POST and telemetryPath
	header       string // "Name: value" lines in place of the defaults
	body         string

	status int
	answer string // if empty, any
	wants  string
	reason string // for which one sample is counted as refused
}

func (r request) send(t *testing.T, url, key string) {
	t.Helper()
	if r.method == "" {
		r.method = http.MethodPost
	}
	if r.path != "" {
		url = strings.TrimSuffix(url, telemetryPath) + r.path
	}
	req, err := http.NewRequest(r.method, url, strings.NewReader(r.body))
	testkit.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/x-ndjson")
	for name, value := range headerLines(r.header) {
		if req.Header.Del(name); value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testkit.NoError(t, err)
	isDocumented(t, req, resp, string(body))
	if got := strings.TrimSuffix(string(body), "\n"); resp.StatusCode != r.status || r.answer != "" && got != r.answer {
		t.Errorf("%s %s %.200q:\n got   %d %s\n wants %d %s", r.method, r.header, r.body, resp.StatusCode, got, r.status,
			r.answer)
	}
	media := "application/json"
	if r.status == http.StatusOK {
		media = "text/plain; charset=utf-8"
	}
	for name, value := range headerLines("Cache-Control: no-store\nContent-Type: " + media + "\n" + r.wants) {
		if got := resp.Header.Get(name); got != value {
			t.Errorf("%d answer: %s is %q, want %q", resp.StatusCode, name, got, value)
		}
	}
}

func (r request) start(t *testing.T, url, key string) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		r.send(t, url, key)
	}()
	return ended
}

func headerLines(s string) map[string]string {
	h := make(map[string]string)
	for line := range strings.Lines(s) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			h[name] = strings.TrimSpace(value)
		}
	}
	return h
}

func zip(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

func TestHTTPAccepts(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	for _, r := range []request{
		{body: sampleLine("V1", 1, 1), status: 202, answer: `{"accepted":1,"rejected":[]}`},
		{body: sampleLine("V2", 1, 2) + "\n\nx\n" + sampleLine("V9", 1, 9) + "\n" + sampleLine("V1", 2, 3), status: 202,
			answer: `{"accepted":2,"rejected":[{"line":3,"reason":"the line is not valid JSON from byte 1 on"},` +
				`{"line":4,"reason":"the source may not send data of this vehicle"}]}`},
		{header: "Content-Type: application/json", body: strings.ReplaceAll(sampleLine("V1", 3, 4), ":", ":\n"), status: 202},
		{header: "Content-Type: Application/JSON; Charset=\"UTF-8\"", body: sampleLine("V1", 4, 5), status: 202},
		{header: "Content-Encoding: gzip", body: zip(sampleLine("V1", 5, 6)), status: 202},
		{header: "Content-Encoding: identity", body: sampleLine("V1", 6, 7), status: 202},
		{header: "Authorization: bearer " + f.key, body: sampleLine("V1", 7, 8), status: 202},
		{path: telemetryPath + "?x=1", body: sampleLine("V1", 8, 9), status: 202},
		{body: strings.Join([]string{sampleLine("V1", 12, 30), "", "{}", "  \t", sampleLine("V2", 10, 10) + "\r",
			sampleLine("V1", 12, 31), signalsLine("x"), sampleLine("V1", 11, 20)}, "\n"), status: 202,
			answer: `{"accepted":5,"rejected":[{"line":3,"reason":"vid is missing` + members + `"}],"ignored":["x"]}`},
	} {
		r.send(t, url, f.key)
	}
	f.store.wants(t, "V1 1", "V2 2", "V1 3", "V1 4", "V1 5", "V1 6", "V1 7", "V1 8", "V1 9",
		"V2 10", "V1 20", "V1 30", "V1 31")
	f.wantMetric(t, 14, "carstate_samples_accepted_total", "protocol", "http")
	f.wantMetric(t, 1, "carstate_samples_refused_total", "protocol", "http", "reason", "malformed")
	f.wantMetric(t, 1, "carstate_samples_refused_total", "protocol", "http", "reason", "not_allowed")
	testkit.Await(t, "all requests are counted", func() bool {
		return f.metric(t, "carstate_ingest_request_duration_seconds", "outcome", "stored") == 9
	})
}

// A request with a valid key counts as a refused sample.
func TestHTTPRefuses(t *testing.T) {
	f := newFixture(t)
	removed, removedKey := f.add(t, "gone", access.AllVehicles())
	f.remove(removed)
	_, token, err := access.New(access.Credential{Kind: access.TokenKind, Developer: "d",
		Operations: access.AllOperations}, testNow)
	testkit.NoError(t, err)
	_, url := startHTTP(t, f)
	g, _ := f.Sources.Get("car")
	good := sampleLine("V1", 1, 1)
	const challenge = `WWW-Authenticate: Bearer realm="carstate-ingest"`
	const invalid = challenge + `, error="invalid_token"`
	const formats = "Accept: application/x-ndjson, application/ndjson, application/jsonl, application/json, " +
		"application/cloudevents+json, application/cloudevents-batch+json\nAccept-Encoding: gzip"
	for _, r := range []request{
		{path: "/", status: 404},
		{path: "/v1/telemetry/", body: good, status: 404},
		{path: "//v1/telemetry", body: good, status: 404},
		{path: "/v1/%74elemetry", body: good, status: 404},
		{path: "/v1/../v1/telemetry", body: good, status: 404},
		{method: "GET", status: 405, wants: "Allow: POST"},
		{method: "PUT", body: good, status: 405, wants: "Allow: POST", reason: "method"},
		{method: "PUT", header: "Authorization: Bearer x", status: 405, wants: "Allow: POST\nWWW-Authenticate:",
			answer: `{"error":"method not allowed: send telemetry by POST"}`},

		{header: "Authorization:", body: good, status: 401, wants: challenge},
		{header: "Authorization: Basic Y2FyOng=", body: good, status: 401, wants: challenge},
		{header: "Authorization: Bearer", body: good, status: 401, wants: challenge},
		{header: "Authorization: Bearer ", body: good, status: 401, wants: challenge},
		{header: "Authorization: Bearer " + mistyped(f.key), body: good, status: 401, wants: invalid},
		{header: "Authorization: Bearer " + removedKey, body: good, status: 401, wants: invalid},
		{header: "Authorization: Bearer " + token, body: good, status: 401, wants: invalid,
			answer: `{"error":"the source key is refused: it is an access token, which is for queries: ` +
				`telemetry takes a source's key, which begins with css_"}`},

		{header: "Content-Type:", body: good, status: 415, wants: formats},
		{header: "Content-Type: text/plain", body: good, status: 415, wants: formats, reason: "content_type"},
		{header: "Content-Type: application/json; charset=latin1", body: good, status: 415},
		{header: "Content-Type: application/json; profile=x", body: good, status: 415},
		{header: "Content-Type: application/json; charset=utf-8; x=y", body: good, status: 415},
		{header: "Content-Encoding: br", body: good, status: 415, wants: formats, reason: "content_type"},
		{header: "Content-Encoding: gzip, gzip", body: zip(zip(good)), status: 415},

		{body: "", status: 400, answer: `{"error":"the body has no sample"}`, reason: "empty"},
		{body: "\n \n", status: 400, reason: "empty"},
		{body: "x", status: 400,
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"the line is not valid JSON from byte 1 on"}]}`},
		{body: sampleLine("V9", 1, 1) + "\n" + sampleLine("V8", 1, 1), status: 403,
			wants: challenge + `, error="insufficient_scope"`},
		{body: sampleLine("V9", 1, 1) + "\nx", status: 400},
		{header: "Content-Type: application/json", body: good + "\n" + good, status: 400},
		{header: "Content-Encoding: gzip", body: good, status: 400, reason: "unreadable"},
		{header: "Content-Encoding: gzip", body: zip(good)[:40], status: 400, reason: "unreadable"},

		{body: strings.Repeat(" \n", ingest.MaxBody/2) + good, status: 413, reason: "over_limit",
			answer: `{"error":"the body is larger than 8 MiB after decompression"}`},
		{header: "Content-Encoding: gzip", body: zip(strings.Repeat(" \n", ingest.MaxBody)), status: 413},
		{header: "Content-Encoding: gzip\nContent-Type: application/json", body: zip(strings.Repeat(" ", ingest.MaxBody)),
			status: 413},
		{body: strings.Repeat(good+"\n", maxSamples+1), status: 413, reason: "over_limit"},
		{body: good + "\n" + strings.Repeat("x", maxSample+1), status: 413,
			answer: `{"error":"a sample is larger than 64 KiB"}`},
	} {
		before, all := g.Seen(), f.metric(t, ingest.MetricRefused)
		counted := f.metric(t, ingest.MetricRefused, "reason", r.reason)
		r.send(t, url, f.key)
		if r.reason == "" {
			continue
		}
		f.wantMetric(t, all+1, ingest.MetricRefused)
		f.wantMetric(t, counted+1, ingest.MetricRefused, "reason", r.reason)
		s := g.Seen()
		if s.Reason.String() != r.reason || s.Text == "" || s.Refused[s.Reason] != before.Refused[s.Reason]+1 {
			t.Errorf("%d %s: got the last refusal %v: %q, %d of them; want one more of %s", r.status, r.header,
				s.Reason, s.Text, s.Refused[s.Reason], r.reason)
		}
	}
	f.store.wants(t)
	f.wantMetric(t, 0, "carstate_samples_accepted_total")
	f.wantMetric(t, 2, ingest.MetricRefused, "reason", "method")
}

func TestHTTPSaysWhenTheListWasCut(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	const one = `{"line":1,"reason":"vid is missing` + members + `"}`
	var lines []string
	for n := range maxRejections {
		lines = append(lines, strings.Replace(one, "1", strconv.Itoa(n+1), 1))
	}
	last := len(lines) - 1
	lines[last] = strings.Replace(lines[last], "vid is missing"+members, "all lines before this one were refused, so no more are read", 1)
	request{body: strings.Repeat("{}\n", maxRejections+1), status: 400,
		answer: `{"accepted":0,"rejected":[` + strings.Join(lines, ",") + `]}`}.send(t, url, f.key)
	request{body: sampleLine("V1", 1, 1) + "\n" + strings.Repeat("{}\n", maxRejections+1), status: 202,
		wants: "Content-Type: application/json"}.send(t, url, f.key)
	f.wantMetric(t, 2*maxRejections+1, "carstate_samples_refused_total", "protocol", "http")
}

// The choice of an operator raises no alert. The table of sources may be empty, so no answer says
// that a key is wrong.
func TestHTTPNotReady(t *testing.T) {
	unknown, _ := access.NewSecret(access.SourceKind)
	for outcome, readOnly := range map[string]bool{"read_only": true, "unavailable": false} {
		f := newFixture(t)
		f.ReadOnly = func() bool { return readOnly }
		f.Ready = func() error { return errDisk }
		_, url := startHTTP(t, f)
		for _, key := range []string{f.key, unknown} {
			request{body: sampleLine("V1", 1, 1), status: 503, wants: "Retry-After: 1"}.send(t, url, key)
		}
		request{body: sampleLine("V1", 1, 1), status: 401}.send(t, url, "no key of ours")
		testkit.Await(t, "both requests are counted as "+outcome, func() bool { // after the answer
			return f.metric(t, "carstate_ingest_request_duration_seconds", "outcome", outcome) == 2
		})
		f.store.wants(t)
	}
}

// A newer version wrote the source's record. The sender tries another node after 503, not after
// 401.
func TestHTTPUnreadSource(t *testing.T) {
	f := newFixture(t)
	_, other := f.add(t, "other", f.source.Vehicles)
	f.Sources.Lose(f.source.Name)
	_, url := startHTTP(t, f)
	rotated, _ := access.NewSecret(access.SourceKind)
	for _, key := range []string{f.key, rotated} {
		request{body: sampleLine("V1", 1, 1), status: 503, wants: "Retry-After: 1"}.send(t, url, key)
	}
	request{body: sampleLine("V1", 2, 2), status: 202}.send(t, url, other)
	f.store.wants(t, "V1 2")
}

func TestHTTPShutdownLetsARequestEnd(t *testing.T) {
	f := newFixture(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	f.store.append = until(release, arrived)
	h, url := startHTTP(t, f)
	first := request{body: sampleLine("V1", 1, 1), status: 202}.start(t, url, f.key)
	<-arrived
	done := make(chan error, 1)
	go func() { done <- h.Shutdown(shutdownContext(t)) }()
	close(release)
	<-first
	if err := <-done; err != nil {
		t.Errorf("Shutdown: got %v, want no error", err)
	}
	f.store.wants(t, "V1 1")
}

func TestHTTPShutdownEnds(t *testing.T) {
	f := newFixture(t)
	arrived := make(chan struct{})
	f.store.append = func(ctx context.Context) error {
		close(arrived)
		<-ctx.Done()
		return ctx.Err()
	}
	h, url := startHTTP(t, f)
	first := make(chan error)
	go func() {
		req, _ := http.NewRequest(http.MethodPost, url, strings.NewReader(sampleLine("V1", 1, 1)))
		req.Header.Set("Authorization", "Bearer "+f.key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			err = errors.New(resp.Status)
		}
		first <- err
	}()
	<-arrived
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: got %v, want %v", err, context.Canceled)
	}
	if err := <-first; err == nil || strings.HasPrefix(err.Error(), "202") {
		t.Errorf("the request: got %v, want an error, and not 202", err)
	}
	f.store.wants(t)
}

// New connections are rejected. One that is accepted during an overload and asks after it is
// served, even in a later overload.
func TestHTTPOverload(t *testing.T) {
	f := newFixture(t)
	overload := f.limit(t)
	h, url := startHTTP(t, f)
	post := posting(f.key, sampleLine("V1", 1, 50))
	opened := func(n int) {
		t.Helper()
		testkit.Await(t, fmt.Sprint(n, " connections are open"), func() bool { return h.Guard.Count() == n })
	}
	older := dialHTTP(t, url, post)
	wantStatus(t, older, http.StatusAccepted)
	overload()
	answer, err := io.ReadAll(dialHTTP(t, url, post))
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 503 ") ||
		!strings.Contains(string(answer), "\r\nRetry-After: 1\r\n") || !strings.Contains(string(answer), "overloaded") {
		t.Errorf("the newer connection: got %s, %v; want 503, Retry-After 1, overloaded", answer, err)
	}
	send(t, older, post)
	wantStatus(t, older, http.StatusAccepted)
	opened(1)
	waits := dialHTTP(t, url, "")
	opened(2)
	older.Close()
	opened(1)
	for n := range 2 {
		send(t, waits, post)
		wantStatus(t, waits, http.StatusAccepted)
		dialHTTP(t, url, "")
		opened(2 + n)
	}
}

// The newest connection beyond the limit ends with its next response.
func TestHTTPExcess(t *testing.T) {
	f := newFixture(t)
	overload := f.limit(t)
	h, url := startHTTP(t, f)
	stays := dialHTTP(t, url, "")
	testkit.Await(t, "the first is accepted", func() bool { return h.Guard.Count() == 1 })
	goes := dialHTTP(t, url, "")
	for round := range 2 {
		for _, c := range []net.Conn{stays, goes} {
			send(t, c, posting(f.key, sampleLine("V1", 1, 50)))
			if ends := wantStatus(t, c, http.StatusAccepted).Close; ends != (round == 1 && c == goes) {
				t.Errorf("round %d: got the end %t, want %t", round, ends, round == 1 && c == goes)
			}
		}
		if round == 0 {
			overload()
		}
	}
}
