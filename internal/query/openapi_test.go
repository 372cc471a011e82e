package query_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

func openAPI(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData([]byte(document(t, newFixture(t).Config, "/openapi.json")))
	testkit.NoError(t, err)
	return doc
}

func TestOpenAPIIsValid(t *testing.T) {
	doc := openAPI(t)
	testkit.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation(),
		openapi3.EnableSchemaFormatValidation()))
	if doc.OpenAPIMajorMinor() != "3.1" {
		t.Errorf("the version: got OpenAPI %s, want 3.1", doc.OpenAPI)
	}
	paths := doc.Paths.InMatchingOrder()
	slices.Sort(paths)
	if !slices.Equal(paths, []string{throttlePath, drivingPath}) {
		t.Errorf("the paths: got %q, want %q", paths, []string{throttlePath, drivingPath})
	}
	for path, item := range doc.Paths.Map() {
		if methods := item.Operations(); len(methods) != 1 || methods["GET"] == nil {
			t.Errorf("%s: got %d methods, want GET alone", path, len(methods))
		}
	}
}

// The document describes every answer to the requests in testdata: status, headers and body.
func TestOpenAPIDescribesEveryAnswer(t *testing.T) {
	doc := openAPI(t)
	closeSchemas(doc)
	files, err := filepath.Glob("testdata/*.txt")
	testkit.NoError(t, err)
	seen := map[int]bool{408: true} // of TestSlowHead
	for _, file := range files {
		if filepath.Base(file) == "README.txt" {
			continue
		}
		f := newFixture(t)
		s := readScript(t, file)
		r := s.start(t, f)
		for _, c := range s.cases {
			request := f.fill(t, c.request)
			conn := r.dial(t)
			go io.WriteString(conn, request)
			method, target, _ := strings.Cut(request, " ")
			path, _ := (&http1.Request{Target: []byte(strings.SplitN(target, " ", 2)[0])}).Path()
			for range c.answers {
				got := readAnswer(t, conn.in, method == "HEAD")
				if item := doc.Paths.Value(string(path)); item != nil && method != "HEAD" {
					status, err := strconv.Atoi(strings.Fields(got.status)[1])
					testkit.NoError(t, err)
					seen[status] = true
					checkAgainst(t, c.where, doc, item.Get, status, got)
				}
				if method == "HEAD" {
					break
				}
			}
		}
	}
	seen[404] = true // only of other paths
	for path, item := range doc.Paths.Map() {
		for status := range item.Get.Responses.Map() {
			if n, _ := strconv.Atoi(status); !seen[n] {
				t.Errorf("%s: got a response %s, want only those that a script gets", path, status)
			}
		}
	}
}

// The document permits members and values that a later version may add.
func closeSchemas(doc *openapi3.T) {
	for _, ref := range doc.Components.Schemas {
		s := ref.Value
		if values, ok := s.Extensions["x-extensible-enum"].([]any); ok {
			s.Enum = values
		}
		if s.Type.Is("object") {
			s.AdditionalProperties = openapi3.BoolSchema{Has: new(false)}
		}
	}
}

func TestOpenAPIIsOpen(t *testing.T) {
	open, closed := openAPI(t), openAPI(t)
	closeSchemas(closed)
	takes := func(doc *openapi3.T, answer any) bool {
		return doc.ValidateSchemaJSON(doc.Components.Schemas["DrivingAnswer"].Value, answer,
			openapi3.EnableJSONSchema2020()) == nil
	}
	for data, want := range map[string][2]bool{ // by the open schemas, by the closed ones
		`{"vid":"A","status":1,"vehicle_runing_state":"3"}`:          {true, true},
		`{"vid":"A","status":0,"vehicle_runing_state":"0"}`:          {true, true},
		`{"vid":"A","status":1,"vehicle_runing_state":"4"}`:          {true, false},
		`{"vid":"A","status":1,"vehicle_runing_state":"3","more":1}`: {true, false},
		`{"vid":"A","status":2,"vehicle_runing_state":"3"}`:          {false, false},
	} {
		var answer any
		testkit.NoError(t, json.Unmarshal([]byte(`{"code":200,"msg":"success","data":`+data+`}`), &answer))
		if got := [2]bool{takes(open, answer), takes(closed, answer)}; got != want {
			t.Errorf("%s: accepted by the open and the closed schemas: got %v, want %v", data, got, want)
		}
	}
}

// Authors of clients use redocly and spectral.
func TestOpenAPIPassesTheRulesOfOthers(t *testing.T) {
	testkit.Slow(t, "it starts programs of Node.js")
	dir := t.TempDir()
	own := document(t, newFixture(t).Config, "/openapi.json")
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "query.json"), []byte(own), 0o600))
	rules := []byte("extends: [[spectral:oas, recommended]]\n")
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "spectral.yaml"), rules, 0o600))
	const ingest = "../ingest/docs/"
	documents := []string{"../../docs/openapi-admin.json", ingest + "openapi.json", filepath.Join(dir, "query.json")}
	for _, linter := range [][]string{
		{"redocly", "lint", "--extends", "recommended-strict", ingest + "asyncapi.json"},
		{"spectral", "lint", "--ruleset", filepath.Join(dir, "spectral.yaml"), "--fail-severity", "hint"},
	} {
		program := filepath.Join("../../.cache/npm/node_modules/.bin", linter[0])
		c := exec.CommandContext(t.Context(), program, append(linter[1:], documents...)...)
		c.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%s: got %v, want no error (make setup installs it)\n%s", linter[0], err, out)
		}
	}
}

// The document need not name these.
var usualHeaders = []string{"Date", "Content-Type", "Content-Length", "Connection"}

func checkAgainst(t *testing.T, where string, doc *openapi3.T, op *openapi3.Operation, status int, got answerRead) {
	t.Helper()
	header := http.Header{}
	for _, line := range got.header {
		name, value, _ := strings.Cut(line, ": ")
		header.Add(name, value)
	}
	err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: &http.Request{Method: "GET"},
			Route:   &routers.Route{Spec: doc, Operation: op},
		},
		Status:  status,
		Header:  header,
		Body:    io.NopCloser(strings.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		t.Errorf("%s: got %v, want an answer as the document says", where, err)
	}
	if response := op.Responses.Status(status); response != nil {
		for name := range header {
			declared := slices.Contains(usualHeaders, name)
			for d := range response.Value.Headers {
				declared = declared || http.CanonicalHeaderKey(d) == name
			}
			if !declared {
				t.Errorf("%s: %d: got the header %s, want one that the document names", where, status, name)
			}
		}
	}
}

func TestOpenAPIExamplesAreAnswers(t *testing.T) {
	doc := openAPI(t)
	f := newFixture(t)
	parked := vehicle.DrivingVerdict{NotDriving: true, Time: signal.At(noon)}
	f.Fleet.Put("NHeN4UqVsohGS55I7LBdh", fleet.Answer{Driving: parked})
	p := start(t, f.Config).dial(t)
	for path, item := range doc.Paths.Map() {
		examples := item.Get.Responses.Status(200).Value.Content["application/json"].Examples
		if len(examples) < 4 {
			t.Errorf("%s: got %d examples of success, want 4 or more", path, len(examples))
		}
		for name, e := range examples {
			want, err := json.Marshal(e.Value.Value)
			testkit.NoError(t, err)
			vid := e.Value.Value.(map[string]any)["data"].(map[string]any)["vid"].(string)
			token := "TOKEN"
			if strings.HasPrefix(vid, "Sandbox") {
				token = "SANDBOX"
			}
			a := f.about(p, path, vid, token)
			if got := sorted(t, []byte(a.body)); !bytes.Equal(got, want) {
				t.Errorf("%s, %s: got %s, want the example %s", path, name, got, want)
			}
			if reason := a.get("Carstate-Reason"); reason != "" && reason != name {
				t.Errorf("%s, %s: got the reason %s, want the name", path, name, reason)
			}
		}
	}
}

func sorted(t *testing.T, body []byte) []byte {
	t.Helper()
	var v any
	testkit.NoError(t, json.Unmarshal(body, &v))
	out, err := json.Marshal(v)
	testkit.NoError(t, err)
	return out
}
