package query

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"path"
	"slices"
	"strings"
	text "text/template"
	"time"
)

// docFiles holds the source files of the documentation: templates (*.tmpl), the texts about
// failures (errors.txt) and operations (operations.json), and files that are served as they are.
//
//go:embed docs
var docFiles embed.FS

// pagePolicy is the Content-Security-Policy of every document. It permits a page to load files from
// this service and to call it, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Values of Cache-Control. A browser must revalidate a page at each use, so that it does not show
// an old page after the service was updated. It may cache the files that a page loads for an hour.
const (
	cachePage  = "no-cache"
	cacheAsset = "public, max-age=3600"
)

// newDocuments returns the public documentation. The documentation states maxAge, the maximum age
// of the verdicts that the service answers with. If maxAge is zero or less, verdicts of any age are
// answered. newDocuments panics if a file is missing or a template fails, which only a bug can
// cause.
func newDocuments(maxAge time.Duration) documents {
	return documents{
		"/":                newDocument("page.html.tmpl", renderPage(maxAge), cachePage),
		"/openapi.json":    newDocument("openapi.json.tmpl", renderOpenAPI(), cachePage),
		"/assets/page.css": asset("page.css"),
		"/assets/page.js":  asset("page.js"),
		"/assets/icon.svg": asset("icon.svg"),
	}
}

// localBase is the base URL of the service in the sample programs. The page's script replaces it by
// the address from which the page was loaded.
const localBase = "http://127.0.0.1:8080"

type operationDoc struct {
	ID       string // the id of its section in the page
	Title    string
	Question string
	Path     string
	Scope    string // the operation's name in a token
	Field    string // the JSON field of the answer
	Vid      string // the vehicle of the samples
	Values   []valueDoc
	Samples  []sampleDoc
}

// valueDoc documents one value of the JSON field in which an operation returns its verdict.
type valueDoc struct {
	Value, Name, Meaning string
	Status               int
}

// sampleDoc is a sample program in one language that calls an operation.
type sampleDoc struct {
	Language, Title, Code string
}

// operationDocs are the operations as docs/operations.json describes them.
var operationDocs = func() (all []operationDoc) {
	if err := json.Unmarshal(readDocFile("operations.json"), &all); err != nil {
		panic(err)
	}
	return all
}()

// sampleLanguages lists the languages of the sample programs in the order of the page.
var sampleLanguages = []sampleDoc{
	{Language: "curl", Title: "curl"},
	{Language: "go", Title: "Go"},
	{Language: "python", Title: "Python"},
	{Language: "javascript", Title: "JavaScript"},
}

var (
	pageTemplate    = template.Must(template.ParseFS(docFiles, "docs/page.html.tmpl"))
	sampleTemplates = text.Must(text.ParseFS(docFiles, "docs/samples/*.tmpl"))
)

// render executes a template. It panics if the template fails, which tests would find.
func render(t interface{ Execute(io.Writer, any) error }, data any) []byte {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// renderPage returns the page that is served at /, which states maxAge (see newDocuments).
func renderPage(maxAge time.Duration) []byte {
	data := struct {
		Base       string
		MaxAge     string // "" if verdicts of any age are answered
		Operations []operationDoc
		Statuses   []statusDoc
	}{localBase, inWords(maxAge), nil, statusDocs}
	for _, op := range operationDocs {
		op.Samples = op.samples(localBase)
		data.Operations = append(data.Operations, op)
	}
	return render(pageTemplate, data)
}

// inWords returns a duration as text, such as "90 seconds", in the largest of hours, minutes and
// seconds in which it is a whole number above one, and otherwise as [time.Duration.String]. If d is
// not positive, it returns "".
func inWords(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"hours", time.Hour}, {"minutes", time.Minute}, {"seconds", time.Second}} {
		if n := d / u.unit; n > 1 && d%u.unit == 0 {
			return fmt.Sprintf("%d %s", n, u.name)
		}
	}
	if d > 0 {
		return d.String()
	}
	return ""
}

// samples returns programs that call the operation at the base URL base, one per language.
func (op operationDoc) samples(base string) []sampleDoc {
	var all []sampleDoc
	for _, s := range sampleLanguages {
		s.Code = string(render(sampleTemplates.Lookup(s.Language+".tmpl"), struct {
			operationDoc
			Base string
		}{op, base}))
		all = append(all, s)
	}
	return all
}

func readDocFile(name string) []byte {
	return must(docFiles.ReadFile("docs/" + name))
}

func asset(name string) *document {
	return newDocument(name, readDocFile(name), cacheAsset)
}

// newDocument returns a document whose content type follows from the extension of name, without
// .tmpl. cache is its Cache-Control.
func newDocument(name string, content []byte, cache string) *document {
	return &document{
		contentType: contentTypes[path.Ext(strings.TrimSuffix(name, ".tmpl"))],
		cache:       cache,
		gzipped:     compress(content),
		plain:       content,
	}
}

// contentTypes maps the extensions of the documents' files to their content types.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".json": "application/json",
	".svg":  "image/svg+xml",
}

// compress returns content compressed with gzip, or nil if that saves less than a tenth.
func compress(content []byte) []byte {
	var b bytes.Buffer
	w := must(gzip.NewWriterLevel(&b, gzip.BestCompression))
	must(w.Write(content))
	if err := w.Close(); err != nil {
		panic(err) // a buffer takes everything
	}
	if b.Len() > len(content)*9/10 {
		return nil
	}
	return b.Bytes()
}

// must returns v. It panics if err is not nil, which only a bug in the embedded files can cause.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("invalid embedded documentation: %v", err))
	}
	return v
}

var openAPITemplate = text.Must(text.New("openapi.json.tmpl").Funcs(text.FuncMap{
	"failures": failureExamples,
	"words":    firstWords,
}).ParseFS(docFiles, "docs/openapi.json.tmpl"))

// renderOpenAPI returns the OpenAPI document that is served at /openapi.json. Its examples of
// failures are generated from the failures that the service sends.
func renderOpenAPI() []byte { return render(openAPITemplate, nil) }

// failureExamples returns, as JSON, an "examples" object of OpenAPI with each failure that has the
// status, by its name. They are in the order of errors.txt, because servers that imitate ours answer
// with the first. It may be empty.
func failureExamples(status int) string {
	type example struct {
		Summary string          `json:"summary"`
		Value   json.RawMessage `json:"value"`
	}
	var examples []string
	for _, s := range statusDocs {
		for _, f := range s.Failures {
			if s.Status == status {
				text := must(json.Marshal(example{f.Cause, json.RawMessage(f.body)}))
				examples = append(examples, fmt.Sprintf("%q:%s", f.name, text))
			}
		}
	}
	return "{" + strings.Join(examples, ",") + "}"
}

// firstWords returns the first words of the failures' messages, sorted, unique, joined by commas.
func firstWords() string {
	var words []string
	for _, s := range statusDocs {
		words = append(words, s.Word.String())
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}
