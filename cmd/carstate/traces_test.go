package main

import (
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"example.org/carstate/internal/nodeprocess"
)

// otlpCollector receives spans by OTLP over HTTP.
type otlpCollector struct {
	url     string
	failing atomic.Bool

	mu    sync.Mutex // guards the fields below
	spans []*otlp.Span
	text  strings.Builder // everything received, as text
	keys  map[string]bool // the Authorization headers received
}

func newCollector(t *testing.T) *otlpCollector {
	c := &otlpCollector{keys: make(map[string]bool)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var export collector.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s is no export of spans: %v", r.URL.Path, err)
		}
		if c.failing.Load() {
			w.WriteHeader(http.StatusBadRequest) // a status that the exporter does not retry
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.keys[r.Header.Get("Authorization")] = true
		c.text.WriteString(prototext.Format(&export))
		for _, of := range export.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// journey returns an error unless the spans contain three steps: the named request, the commit that
// follows the request, and the fold that follows the commit. A span follows another one if the
// other one is its parent, or if it has a link to the other one.
func (c *otlpCollector) journey(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	follows := func(s, from *otlp.Span) bool {
		if string(s.ParentSpanId) == string(from.SpanId) && string(s.TraceId) == string(from.TraceId) {
			return true
		}
		for _, l := range s.Links {
			if string(l.SpanId) == string(from.SpanId) && string(l.TraceId) == string(from.TraceId) {
				return true
			}
		}
		return false
	}
	found := "nothing"
	for _, request := range c.spans {
		if request.Name != name || len(request.ParentSpanId) > 0 {
			continue
		}
		found = "the request"
		for _, commit := range c.spans {
			if commit.Name != "group commit" || !follows(commit, request) {
				continue
			}
			found = "the commit"
			for _, fold := range c.spans {
				if fold.Name == "fold" && follows(fold, commit) && fold.EndTimeUnixNano >= commit.StartTimeUnixNano {
					return nil
				}
			}
		}
	}
	return errors.New("of " + name + " there is " + found)
}

// TestTraces_FromArrivalToFold checks, with the spans that a collector receives, that the traces of
// telemetry are complete from its arrival to its fold, for HTTP and for MQTT. The spans must
// contain no vid, no name of a source and no secret. The log must say once when the collector
// fails, and when it is back.
func TestTraces_FromArrivalToFold(t *testing.T) {
	t.Parallel()
	startsPrograms(t)
	c := newCollector(t)
	p, err := startProcess(t.TempDir(), append(os.Environ(),
		"OTEL_EXPORTER_OTLP_ENDPOINT="+c.url, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20s3cret,s3cretWithoutValue",
		"OTEL_BSP_SCHEDULE_DELAY=50"), "--trace-sample", "1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	key := p.addSource(t, "gateway")
	const asked = "4bf92f3577b34da6a3ce929d0e0e4736"
	req, err := http.NewRequest(http.MethodPost, p.URL(nodeprocess.Ingest)+"/v1/telemetry",
		strings.NewReader(`{"vid":"tracedCar","time":"`+time.Now().UTC().Format(time.RFC3339)+
			`","signals":{"Vehicle.Speed":50}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-"+asked+"-00f067aa0ba902b7-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp.Status)
	}
	p.carstate(t, "replay", demoDrive, "--vid", "tracedByMQTT", "--source", "gateway", "--key", key,
		"--mqtt-url", "mqtt://"+p.Address(nodeprocess.MQTT))
	for _, name := range []string{"POST /v1/telemetry", "MQTT PUBLISH"} {
		if err := until(time.Minute, func() error { return c.journey(name) }); err != nil {
			t.Error(err)
		}
	}

	c.failing.Store(true)
	if err := until(time.Minute, func() error {
		if _, err := post(p, key, []string{"tracedCar"}); err != nil {
			return err
		}
		if strings.Count(p.log.String(), "traces cannot be sent") == 0 {
			return errors.New("the log does not say that the collector fails")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	c.failing.Store(false)
	if err := until(time.Minute, func() error {
		if _, err := post(p, key, []string{"tracedCar"}); err != nil {
			return err
		}
		if !strings.Contains(p.log.String(), "traces are being sent again") {
			return errors.New("the log does not say that the collector is back")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	p.stop(t)
	if n := strings.Count(p.log.String(), "traces cannot be sent"); n != 1 {
		t.Errorf("the log says %d times that the collector fails, want once", n)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.keys["Bearer s3cret"] || len(c.keys) != 1 {
		t.Errorf("the collector was sent the keys %v", c.keys)
	}
	for _, secret := range []string{"tracedCar", "tracedByMQTT", "gateway", key[4:], asked} {
		if strings.Contains(c.text.String(), secret) {
			t.Errorf("the spans hold %q", secret)
		}
	}
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == asked {
			t.Error("a sender chose the trace")
		}
	}
	for _, secret := range []string{"s3cret", "tracedCar"} {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log holds %q:\n%s", secret, p.log)
		}
	}
}
