package query

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"carstate/internal/fleet"
	"carstate/internal/vehicle"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// openAPI reads the document as a client's generator would.
func openAPI(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(renderOpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestOpenAPIIsValid(t *testing.T) {
	doc := openAPI(t)
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation()); err != nil {
		t.Error(err)
	}
	if doc.OpenAPIMajorMinor() != "3.1" {
		t.Errorf("it is OpenAPI %s", doc.OpenAPI)
	}
	paths := doc.Paths.InMatchingOrder()
	slices.Sort(paths)
	if !slices.Equal(paths, []string{throttlePath, drivingPath}) {
		t.Errorf("its paths are %q", paths)
	}
	for path, item := range doc.Paths.Map() {
		if methods := item.Operations(); len(methods) != 1 || methods["GET"] == nil {
			t.Errorf("%s has %d methods, not GET alone", path, len(methods))
		}
	}
}

// TestOpenAPIDescribesEveryAnswer plays the contract in testdata and holds every
// answer of the two operations against the document: its status, all of its
// headers, its body. In turn every status of the document has to be seen.
func TestOpenAPIDescribesEveryAnswer(t *testing.T) {
	doc := openAPI(t)
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{408: true} // a head that is too slow: TestSlowHead
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
			in := bufio.NewReader(conn)
			method, target, _ := strings.Cut(request, " ")
			path, _ := splitTarget([]byte(strings.SplitN(target, " ", 2)[0]))
			for range c.answers {
				got := readAnswer(t, in, method == "HEAD")
				if item := doc.Paths.Value(string(path)); item != nil && method != "HEAD" {
					status, err := strconv.Atoi(strings.Fields(got.status)[1])
					if err != nil {
						t.Fatal(err)
					}
					seen[status] = true
					checkAgainst(t, c.where, doc, item.Get, status, got)
				}
				if method == "HEAD" {
					break
				}
			}
		}
	}
	seen[404] = true // only where the path is none of the document's
	for path, item := range doc.Paths.Map() {
		for status := range item.Get.Responses.Map() {
			if n, _ := strconv.Atoi(status); !seen[n] {
				t.Errorf("%s has a response %s that no script gets", path, status)
			}
		}
	}
}

// usualHeaders belong to HTTP and not to the interface.
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
		t.Errorf("%s: %v", where, err)
	}
	if response := op.Responses.Status(status); response != nil {
		for name := range header {
			declared := slices.Contains(usualHeaders, name)
			for d := range response.Value.Headers {
				declared = declared || http.CanonicalHeaderKey(d) == name
			}
			if !declared {
				t.Errorf("%s: %d has a header %s that the document does not name", where, status, name)
			}
		}
	}
}

// TestOpenAPIExamplesAreAnswers asks for each example of success and compares
// what comes. Those of failures are made of the failures themselves.
func TestOpenAPIExamplesAreAnswers(t *testing.T) {
	doc := openAPI(t)
	f := newFixture(t)
	f.Fleet.Put("NHeN4UqVsohGS55I7LBdh", fleet.Answer{Driving: vehicle.DrivingVerdict{NotDriving: true, Time: vehicle.At(noon)}})
	a := f.answerer()
	for path, item := range doc.Paths.Map() {
		examples := item.Get.Responses.Status(200).Value.Content["application/json"].Examples
		if len(examples) < 4 {
			t.Errorf("%s has %d examples of success", path, len(examples))
		}
		for name, e := range examples {
			want, err := json.Marshal(e.Value.Value)
			if err != nil {
				t.Fatal(err)
			}
			vid := e.Value.Value.(map[string]any)["data"].(map[string]any)["vid"].(string)
			secret := f.secrets["TOKEN"]
			if strings.HasPrefix(vid, "Sandbox") {
				secret = f.secrets["SANDBOX"]
			}
			var w response
			a.answer(get(path+"?access_token="+secret+"&vid="+vid), noon, &w)
			if got := sorted(t, w.body); !bytes.Equal(got, want) {
				t.Errorf("%s, %s: the answer is %s, the example %s", path, name, got, want)
			}
			if reason := w.header("Carstate-Reason"); reason != "" && reason != name {
				t.Errorf("%s, %s: the reason is %s", path, name, reason)
			}
		}
	}
}

// sorted writes JSON as json.Marshal does.
func sorted(t *testing.T, body []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
