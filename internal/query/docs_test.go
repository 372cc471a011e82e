package query_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"maps"
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

type operationDoc struct {
	Title, Question, Path, Scope, Field, Vid string
	Values                                   []struct {
		Value, Name, Meaning string
		Status               int
	}
}

func operationDocs(t *testing.T) (all []operationDoc) {
	t.Helper()
	text, err := os.ReadFile("docs/operations.json")
	testkit.NoError(t, err)
	testkit.NoError(t, json.Unmarshal(text, &all))
	return all
}

type statusDoc struct {
	Status, Word, Title, Meaning, Again string
	Failures                            []failureDoc
}

type failureDoc struct{ Name, Message, Cause, Cure string }

var words = map[string]string{
	"400": "invalid_request", "401": "invalid_token", "403": "insufficient_scope", "404": "not_found",
	"405": "method_not_allowed", "408": "invalid_request", "414": "invalid_request", "429": "rate_limited",
	"431": "invalid_request", "503": "unavailable",
}

func statusDocs(t *testing.T) (all []statusDoc) {
	t.Helper()
	text, err := os.ReadFile("docs/errors.txt")
	testkit.NoError(t, err)
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.Split(paragraph, "\n")
		if status, title, ok := strings.Cut(lines[0], " "); ok {
			all = append(all, statusDoc{status, words[status], title, lines[1], lines[2], nil})
			continue
		}
		s := &all[len(all)-1]
		s.Failures = append(s.Failures, failureDoc{lines[0], lines[1], lines[2], lines[3]})
	}
	return all
}

// The code and docs/errors.txt have the same failures, and the page shows all of them.
func TestEveryFailureIsDocumented(t *testing.T) {
	f := newFixture(t)
	page := html.UnescapeString(document(t, f.Config, "/"))
	// With a misspelt name, a failure would be nil.
	used := make(map[string]bool)
	for _, name := range []string{"failure.go", "params.go", "answer.go", "../http1/request.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		testkit.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				used[strings.Trim(l.Value, `"`)] = true
			}
			return true
		})
	}
	list := "The first words are " + strings.Join(slices.Compact(slices.Sorted(maps.Values(words))), ", ") + "."
	if !strings.Contains(document(t, f.Config, "/openapi.json"), list) {
		t.Errorf("openapi.json: got no %q, want it", list)
	}
	limited := f.about(start(t, f.Config).dial(t), drivingPath, access.SandboxRateLimited, "SANDBOX")
	for _, s := range statusDocs(t) {
		for _, d := range s.Failures {
			for _, text := range []string{d.Message, d.Cause, d.Cure} {
				if text == "" || !strings.Contains(page, text) {
					t.Errorf("%s: got a page without %q, want it there", d.Name, text)
				}
			}
			if !used[d.Name] {
				t.Errorf("%s: got no place of its own in the code, want one", d.Name)
			}
			delete(used, d.Name)
			if d.Name == "rate_limited" && !strings.Contains(limited.body, d.Message) {
				t.Errorf("over the rate: got %s, want the documented %s", limited.body, d.Message)
			}
		}
	}
}

// The page's script replaces localBase in the sample programs.
const localBase = "http://127.0.0.1:8080"

func TestDocumentsNameNoOtherHost(t *testing.T) {
	address := regexp.MustCompile(`(?:https?:)?//[a-zA-Z0-9][^\s"'<>)]*`)
	c := newFixture(t).Config
	paths := []string{"/"}
	for _, link := range regexp.MustCompile(`(?:href|src)="([^"#:]+)"`).FindAllStringSubmatch(document(t, c, "/"), -1) {
		paths = append(paths, "/"+link[1])
	}
	if len(paths) < 5 {
		t.Errorf("the links of the page: got %q, want 5 or more", paths)
	}
	for _, path := range paths {
		for _, found := range address.FindAllString(document(t, c, path), -1) {
			if !strings.HasPrefix(found, localBase) && found != "http://www.w3.org/2000/svg" {
				t.Errorf("%s: got the address %s, want one of %s", path, found, localBase)
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
		c := newFixture(t).Config
		c.MaxAge = age
		if !strings.Contains(document(t, c, "/"), want) {
			t.Errorf("the page: got no %q, want it", want)
		}
	}
}

// In six different minutes, because of SandboxCycle.
func TestSandboxTableIsTrue(t *testing.T) {
	f := newFixture(t)
	p, operations := start(t, f.Config).dial(t), operationDocs(t)
	names := map[string]map[string]string{}
	for _, op := range operations {
		names[op.Path] = map[string]string{}
		for _, v := range op.Values {
			names[op.Path][v.Value] = v.Name
		}
	}
	cell := func(path, vid string) string {
		var values []string
		for minute := range 6 {
			f.clock.Advance(noon.Add(time.Duration(minute) * time.Minute).Sub(f.clock.Now()))
			a := f.about(p, path, vid, "SANDBOX")
			if status := strings.Fields(a.status)[1]; status != "200" {
				if a.get("Retry-After") == "" {
					t.Errorf("%s: got %s without Retry-After, want it", vid, status)
				}
				return status + " with Retry-After"
			}
			if reason := a.get("Carstate-Reason"); reason != "" {
				return "status 0, " + reason
			}
			value := string(a.body[len(a.body)-len(`1"}}`)])
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
	markdown, err := os.ReadFile("../../docs/query-api.md")
	testkit.NoError(t, err)
	row := regexp.MustCompile(`(?m)^(?:    <tr><th scope="row">|\| )([<>/` + "`" + `code]*Sandbox.*?)(?:</th><td>| \| )` +
		`(.*?)(?:</td><td>| \| )(.*?)(?:</td></tr>| \|)$`)
	plain := func(s string) string { return regexp.MustCompile("<[^>]*>|`").ReplaceAllString(s, "") }
	page := document(t, f.Config, "/")
	for name, text := range map[string]string{"the page": page, "docs/query-api.md": string(markdown)} {
		rows := row.FindAllStringSubmatch(text, -1)
		if want := access.SandboxVehicles().Len(); len(rows) != want {
			t.Errorf("the table of %s has %d rows, want %d", name, len(rows), want)
		}
		for _, row := range rows {
			vid := plain(row[1])
			for i, op := range operations {
				if got, want := plain(row[i+2]), cell(op.Path, vid); got != want {
					t.Errorf("%s, %s: %s: got %s, want %s as the service", vid, op.Title, name, got, want)
				}
			}
		}
	}
}

type sample struct{ language, code string }

var sampleInPage = regexp.MustCompile(`(?s)data-language="(\w+)" data-title=.*?<code>(.*?)</code></pre>`)

func samples(t *testing.T, base string) map[string][]sample {
	t.Helper()
	all := make(map[string][]sample)
	for _, s := range sampleInPage.FindAllStringSubmatch(document(t, newFixture(t).Config, "/"), -1) {
		code := html.UnescapeString(s[2])
		for _, op := range operationDocs(t) {
			if strings.Contains(code, localBase+op.Path) {
				code = strings.ReplaceAll(code, localBase, base)
				all[op.Scope] = append(all[op.Scope], sample{s[1], code})
			}
		}
	}
	if n := len(slices.Concat(slices.Collect(maps.Values(all))...)); n != 8 {
		t.Errorf("the page has %d samples, want four for each operation", n)
	}
	return all
}

// program needs the language, and fails if the sample prints the token.
func (s sample) program(t *testing.T) func(secret string) (string, error) {
	t.Helper()
	command, dir := map[string][]string{
		"curl":       {"sh", "sample.sh"},
		"go":         {"go", "run", "sample.go"},
		"python":     {"python3", "sample.py"},
		"javascript": {"node", "sample.mjs"},
	}[s.language], t.TempDir()
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Fatalf("the command %s: got none, want it: apt-get install -y curl python3 nodejs", command[0])
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, command[len(command)-1]), []byte(s.code), 0o644))
	return func(secret string) (string, error) {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CARSTATE_TOKEN="+secret)
		out, err := cmd.CombinedOutput()
		if _, random, _ := strings.Cut(secret, "_"); bytes.Contains(out, []byte(random)) {
			t.Error("the output of the sample: got the token in it, want it not")
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
	for scope, programs := range samples(t, redirects.URL) {
		for _, s := range programs {
			t.Run(scope+"/"+s.language, func(t *testing.T) {
				asked.Store(0)
				followed.Store(0)
				out, err := s.program(t)(secret)
				if err == nil != (s.language == "curl") {
					t.Errorf("the sample: got %q, error %v; want an error: %t", out, err, s.language != "curl")
				}
				if asked.Load() != 1 || followed.Load() != 0 {
					t.Errorf("got %d requests, and %d of the other host; want 1, 0", asked.Load(), followed.Load())
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
	for scope, programs := range samples(t, "http://"+r.addr) {
		for _, s := range programs {
			t.Run(scope+"/"+s.language, func(t *testing.T) {
				ask := s.program(t)
				expected := want[scope]
				if s.language == "curl" {
					// without a terminal, curl prints its progress before the body
					expected = bodies[scope]
				}
				if out, err := ask(secrets["SANDBOX"]); err != nil || !strings.HasSuffix(out, expected) {
					t.Errorf("the sample: got %q, error %v; want %q at the end", out, err, expected)
				}
				if out, err := ask(secrets["REVOKED"]); err == nil != (s.language == "curl") ||
					!strings.Contains(out, "invalid_token: the access token was revoked") {
					t.Errorf("a revoked token: got %q, error %v; want that it was revoked", out, err)
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
	}{localBase, operationDocs(t), statusDocs(t)})
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
