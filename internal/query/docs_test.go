package query

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"text/template"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

// The code and docs/errors.txt have the same failures, and the page shows all of them.
func TestEveryFailureIsDocumented(t *testing.T) {
	page := html.UnescapeString(string(renderPage(maxAge)))
	documented := 0
	for _, s := range statusDocs {
		for _, f := range s.Failures {
			documented++
			for _, text := range []string{f.Message, f.Cause, f.Cure} {
				if text == "" || !strings.Contains(page, text) {
					t.Errorf("%s: the page lacks %q", f.name, text)
				}
			}
		}
	}
	if documented != len(failures) {
		t.Errorf("docs/errors.txt has %d failures, but only %d names", documented, len(failures))
	}
	// With a misspelt name, a failure would be nil.
	used := make(map[*failure]bool)
	for _, name := range []string{"failure.go", "params.go", "answer.go", "../http1/request.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		testkit.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				used[failures[strings.Trim(l.Value, `"`)]] = true
			}
			return true
		})
	}
	delete(used, nil) // other texts
	if len(used) != len(failures) {
		t.Errorf("the code names %d of the %d failures", len(used), len(failures))
	}
	var w response
	w.tooManyCalls(access.Rate{Calls: 60, Window: time.Minute}, time.Second)
	if string(w.Body) != failRateLimited.body {
		t.Errorf("over the rate: got %s, documented is %s", w.Body, failRateLimited.body)
	}
}

func TestDocumentsNameNoOtherHost(t *testing.T) {
	address := regexp.MustCompile(`(?:https?:)?//[a-zA-Z0-9][^\s"'<>)]*`)
	for path, d := range newDocuments(maxAge) {
		for _, found := range address.FindAllString(string(d.plain), -1) {
			if !strings.HasPrefix(found, localBase) && found != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", path, found)
			}
		}
	}
}

func TestPage_NamesMaxAge(t *testing.T) {
	for age, want := range map[time.Duration]string{
		5 * time.Minute:         "uses readings for <b>5 minutes</b>",
		24 * time.Hour:          "uses readings for <b>24 hours</b>",
		90 * time.Second:        "uses readings for <b>90 seconds</b>",
		1500 * time.Millisecond: "uses readings for <b>1.5s</b>",
	} {
		if !bytes.Contains(renderPage(age), []byte(want)) {
			t.Errorf("the page does not say: %s", want)
		}
	}
}

// In six different minutes, because of SandboxCycle.
func TestSandboxTableIsTrue(t *testing.T) {
	f := newFixture(t)
	a := f.answerer()
	names := map[string]map[string]string{}
	for _, op := range operationDocs {
		names[op.Path] = map[string]string{}
		for _, v := range op.Values {
			names[op.Path][v.Value] = v.Name
		}
	}
	cell := func(path, vid string) string {
		var values []string
		for minute := range 6 {
			w := a.about(path, vid, f.secrets["SANDBOX"], noon.Add(time.Duration(minute)*time.Minute))
			if w.Status != 200 {
				if w.header("Retry-After") == "" {
					t.Errorf("%s: %d without Retry-After", vid, w.Status)
				}
				return fmt.Sprintf("%d with Retry-After", w.Status)
			}
			if reason := w.header("Carstate-Reason"); reason != "" {
				return "status 0, " + reason
			}
			value := string(w.Body[len(w.Body)-len(`1"}}`)])
			if !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
		if len(values) == 1 {
			return fmt.Sprintf("%q %s", values[0], names[path][values[0]])
		}
		slices.Sort(values)
		return `"` + strings.Join(values, `", "`) + `" in turn, a minute each`
	}
	document, err := os.ReadFile("../../docs/query-api.md")
	testkit.NoError(t, err)
	row := regexp.MustCompile(`(?m)^(?:    <tr><th scope="row">|\| )([<>/` + "`" + `code]*Sandbox.*?)(?:</th><td>| \| )` +
		`(.*?)(?:</td><td>| \| )(.*?)(?:</td></tr>| \|)$`)
	plain := func(s string) string { return regexp.MustCompile("<[^>]*>|`").ReplaceAllString(s, "") }
	for name, text := range map[string][]byte{"the page": renderPage(maxAge), "docs/query-api.md": document} {
		rows := row.FindAllStringSubmatch(string(text), -1)
		if want := access.SandboxVehicles().Len(); len(rows) != want {
			t.Errorf("the table of %s has %d rows, want %d", name, len(rows), want)
		}
		for _, row := range rows {
			vid := plain(row[1])
			for i, op := range operationDocs {
				if got, want := plain(row[i+2]), cell(op.Path, vid); got != want {
					t.Errorf("%s, %s: %s says %s, the service %s", vid, op.Title, name, got, want)
				}
			}
		}
	}
}

// program needs the language, and fails if the sample prints the token.
func (s sampleDoc) program(t *testing.T) func(secret string) (string, error) {
	t.Helper()
	command, dir := map[string][]string{
		"curl":       {"sh", "sample.sh"},
		"go":         {"go", "run", "sample.go"},
		"python":     {"python3", "sample.py"},
		"javascript": {"node", "sample.mjs"},
	}[s.Language], t.TempDir()
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Fatalf("this test needs %s: apt-get install -y curl python3 nodejs", command[0])
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, command[len(command)-1]), []byte(s.Code), 0o644))
	return func(secret string) (string, error) {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CARSTATE_TOKEN="+secret)
		out, err := cmd.CombinedOutput()
		if _, random, _ := strings.Cut(secret, "_"); bytes.Contains(out, []byte(random)) {
			t.Error("the sample prints the token")
		}
		return string(out), err
	}
}

// Another host must not get the token.
func TestSamplesFollowNoRedirect(t *testing.T) {
	t.Parallel()
	testkit.Slow(t, "it starts curl, Python and Node")
	var asked, followed atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer other.Close()
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Location", other.URL+r.URL.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	defer redirects.Close()
	secret, _ := access.NewSecret(access.TokenKind)
	for _, op := range operationDocs {
		for _, s := range op.samples(redirects.URL) {
			t.Run(op.Scope+"/"+s.Language, func(t *testing.T) {
				asked.Store(0)
				followed.Store(0)
				out, err := s.program(t)(secret)
				if err == nil != (s.Language == "curl") {
					t.Errorf("it printed %q: %v", out, err)
				}
				if asked.Load() != 1 || followed.Load() != 0 {
					t.Errorf("the service was asked %d times, the other host %d times", asked.Load(), followed.Load())
				}
			})
		}
	}
}

func TestSamplesRun(t *testing.T) {
	t.Parallel()
	testkit.Slow(t, "it starts curl, Python and Node")
	f := newFixture(t)
	r, secrets := start(t, f.Config), f.secrets
	want := map[string]string{"car_driving_state": "traffic jam (3)\n", "throttle_system": "anomaly (0)\n"}
	bodies := map[string]string{
		"car_driving_state": `{"code":200,"msg":"success","data":` +
			`{"vid":"SandboxJam","status":1,"vehicle_runing_state":"3"}}`,
		"throttle_system": `{"code":200,"msg":"success","data":` +
			`{"vid":"SandboxAnomaly","status":1,"throttle_system":"0"}}`,
	}
	for _, op := range operationDocs {
		for _, s := range op.samples("http://" + r.addr) {
			t.Run(op.Scope+"/"+s.Language, func(t *testing.T) {
				ask := s.program(t)
				expected := want[op.Scope]
				if s.Language == "curl" {
					// without a terminal, curl prints its progress before the body
					expected = bodies[op.Scope]
				}
				if out, err := ask(secrets["SANDBOX"]); err != nil || !strings.HasSuffix(out, expected) {
					t.Errorf("it printed %q: %v", out, err)
				}
				if out, err := ask(secrets["REVOKED"]); err == nil != (s.Language == "curl") ||
					!strings.Contains(out, "invalid_token: the access token was revoked") {
					t.Errorf("with a revoked token it printed %q: %v", out, err)
				}
			})
		}
	}
}

var updateAPIDoc = flag.Bool("update-api-doc", false, "write docs/query-api.md")

// Both are made from the same tables.
func TestAPIDocument(t *testing.T) {
	functions := template.FuncMap{
		"anchor": func(title string) string { return strings.ReplaceAll(strings.ToLower(title), " ", "-") },
		"cell":   func(text string) string { return strings.ReplaceAll(text, "|", `\|`) },
	}
	page, err := template.New("query-api.md.tmpl").Funcs(functions).ParseFiles("testdata/query-api.md.tmpl")
	testkit.NoError(t, err)
	var want bytes.Buffer
	err = page.Execute(&want, struct {
		Base       string
		Operations []operationDoc
		Statuses   []statusDoc
	}{localBase, operationDocs, statusDocs})
	testkit.NoError(t, err)
	file := filepath.Join("..", "..", "docs", "query-api.md")
	if *updateAPIDoc {
		testkit.NoError(t, os.WriteFile(file, want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(file)
	testkit.NoError(t, err)
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is out of date: go test ./internal/query -run TestAPIDocument -update-api-doc", file)
	}
}
