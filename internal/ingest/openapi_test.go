package ingest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
)

var openAPI = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromFile("docs/openapi.json")
})

// Each response of the HTTP tests must be valid in docs/openapi.json.
func isDocumented(t *testing.T, r *http.Request, answer *http.Response, body string) {
	t.Helper()
	doc, err := openAPI()
	testkit.NoError(t, err)
	operation := doc.Paths.Value(telemetryPath).GetOperation(r.Method)
	if r.URL.Path != telemetryPath || operation == nil {
		return
	}
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: r, Route: &routers.Route{Spec: doc, Operation: operation},
		},
		Status: answer.StatusCode, Header: answer.Header, Body: io.NopCloser(strings.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		t.Errorf("this answer: got %v, want one as docs/openapi.json says", err)
	}
}

func TestOpenAPIIsOfTheListener(t *testing.T) {
	doc, err := openAPI()
	testkit.NoError(t, err)
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Errorf("the document: got %v, want no error", err)
	}
	paths := doc.Paths.InMatchingOrder()
	if !slices.Equal(paths, []string{telemetryPath}) || len(doc.Paths.Value(telemetryPath).Operations()) != 2 {
		t.Errorf("the paths: got %q, want only %s with 2 methods", paths, telemetryPath)
	}
	signals := doc.Components.Schemas["Sample"].Value.Properties["signals"].Value.Properties
	if len(signals) != signal.Num-1 { // nobody sends SpeedHolds
		t.Errorf("the signals: got %d, want %d", len(signals), signal.Num-1)
	}
	for g := range signal.SpeedHolds {
		ref := signals[g.String()]
		if ref == nil {
			t.Errorf("%s: got no schema, want one", g)
			continue
		}
		if g >= signal.DTCList && g < signal.FreeFlowSpeed {
			continue
		}
		s := ref.Value
		if s.Min == nil || s.Max == nil || s.Description != g.Unit() {
			t.Errorf("%s: got no range or the unit %q, want a range and %q", g, s.Description, g.Unit())
			continue
		}
		var r signal.Readings
		within := r.Set(g, *s.Min) == nil && r.Set(g, *s.Max) == nil
		if !within || r.Set(g, *s.Min-1) == nil || r.Set(g, *s.Max+1) == nil {
			t.Errorf("%s: got the range %g to %g, want that of Set", g, *s.Min, *s.Max)
		}
	}
}

// A test of internal/query runs linters on the documents.
func TestDocumentation(t *testing.T) {
	_, url := startHTTP(t, newFixture(t))
	base := strings.TrimSuffix(url, telemetryPath)
	for path, contentType := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8",
		"/openapi.json": "application/json", "/asyncapi.json": "application/json",
	} {
		response, err := http.Get(base + path)
		testkit.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || err != nil || len(body) == 0 ||
			response.Header.Get("Content-Type") != contentType {
			t.Errorf("GET %s: got %s, %v, %d bytes, want 200 and %s", path, response.Status, err, len(body), contentType)
		}
	}
	request{path: "/", status: http.StatusNotFound}.send(t, base, "")
}

func TestAsyncAPIIsOfTheListener(t *testing.T) {
	text, err := os.ReadFile("docs/asyncapi.json")
	testkit.NoError(t, err)
	var doc struct {
		Channels   map[string]struct{ Address string }
		Components struct {
			Messages map[string]struct {
				Examples []struct{ Payload json.RawMessage }
			}
		}
	}
	testkit.NoError(t, json.Unmarshal(text, &doc))
	_, client := startMQTTClient(t, newFixture(t), 5)
	client.publish(2, 1, strings.Replace(doc.Channels["telemetry"].Address, "{vid}", "V1", 1),
		string(doc.Components.Messages["sample"].Examples[0].Payload))
	client.wantPuback(1, 0)
}
