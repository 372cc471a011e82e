package node

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.org/carstate/internal/testkit"
)

// TestNothingIsTraced checks that a node without an endpoint has no tracer, so that no span is
// created.
func TestNothingIsTraced(t *testing.T) {
	tr, err := newTraces(t.Context(), new(Config))
	if err != nil || tr.tracer() != nil || tr.close(t.Context()) != nil {
		t.Errorf("got %+v, %v, want no tracer", tr, err)
	}
}

// TestHostileCollector checks that neither spans nor the collector's key are sent to the target of
// a redirect, and that the collector's response, which may repeat the key, is not logged.
func TestHostileCollector(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		t.Errorf("elsewhere got %d bytes, %v, and the key %q", len(body), err, r.Header.Get("Api-Key"))
	}))
	defer elsewhere.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
		},
		"refuses": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "the key "+r.Header.Get("Api-Key")+" is not valid", http.StatusUnauthorized)
		},
		"takes a part": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"not by `+
				r.Header.Get("Api-Key")+`"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				answer(w, r)
			}))
			defer collector.Close()
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret")
			log := new(testkit.Buffer)
			tr, err := newTraces(t.Context(), &Config{OTLPEndpoint: collector.URL + "/v1/traces", TraceSample: 1,
				Log: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			_, span := tr.tracer().Start(t.Context(), "test")
			span.End()
			if err := tr.close(t.Context()); err != nil {
				t.Error(err)
			}
			if asked != 1 || log.Count("traces cannot be sent") != 1 || log.Count("s3cret") > 0 {
				t.Errorf("asked %d times:\n%s", asked, log)
			}
		})
	}
}
