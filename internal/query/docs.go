package query

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	text "text/template"
	"time"
)

//go:embed docs
var docFiles embed.FS

// pagePolicy permits a page only to load files from this service and to call it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// A browser revalidates a page at each use, so it shows no old one.
const (
	cachePage  = "no-cache"
	cacheAsset = "public, max-age=3600"
)

func newDocuments(maxAge time.Duration) map[string]*document {
	return map[string]*document{
		"/":                newDocument(renderPage(maxAge), "text/html; charset=utf-8", cachePage),
		"/openapi.json":    newDocument(render(openAPITemplate, nil), "application/json", cachePage),
		"/assets/page.css": newDocument(readDocFile("page.css"), "text/css; charset=utf-8", cacheAsset),
		"/assets/page.js":  newDocument(readDocFile("page.js"), "text/javascript; charset=utf-8", cacheAsset),
		"/assets/icon.svg": newDocument(readDocFile("icon.svg"), "image/svg+xml", cacheAsset),
	}
}

type operationDoc struct {
	ID       string // of its section in the page
	Title    string
	Question string
	Path     string
	Scope    string // its name in a token
	Field    string // of the answer's JSON
	Vid      string
	Values   []valueDoc
}

type valueDoc struct {
	Value, Name, Meaning string
	Status               int
}

type sampleDoc struct {
	Language, Title, Code string
}

var operationDocs = func() (all []operationDoc) {
	if err := json.Unmarshal(readDocFile("operations.json"), &all); err != nil {
		panic(err)
	}
	return all
}()

var (
	pageTemplate    = template.Must(template.ParseFS(docFiles, "docs/page.html.tmpl"))
	sampleTemplates = text.Must(text.ParseFS(docFiles, "docs/samples/*.tmpl"))
)

func render(t interface{ Execute(io.Writer, any) error }, data any) []byte {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func renderPage(maxAge time.Duration) []byte {
	return render(pageTemplate, struct {
		MaxAge     string
		Operations []operationDoc
		Statuses   []statusDoc
	}{inWords(maxAge), operationDocs, statusDocs})
}

// inWords returns "90 seconds" for example.
func inWords(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"hours", time.Hour}, {"minutes", time.Minute}, {"seconds", time.Second}} {
		if n := d / u.unit; n > 1 && d%u.unit == 0 {
			return fmt.Sprintf("%d %s", n, u.name)
		}
	}
	return d.String()
}

// Samples is called by page.html.tmpl. The page's script replaces the address in them.
func (op operationDoc) Samples() (all []sampleDoc) {
	for _, title := range []string{"curl", "Go", "Python", "JavaScript"} {
		language := strings.ToLower(title)
		code := render(sampleTemplates.Lookup(language+".tmpl"), op)
		all = append(all, sampleDoc{language, title, string(code)})
	}
	return all
}

func readDocFile(name string) []byte {
	return must(docFiles.ReadFile("docs/" + name))
}

// document never changes, so answers share it.
type document struct {
	contentType string
	cache       string
	gzipped     []byte
	plain       []byte
}

func newDocument(content []byte, contentType, cache string) *document {
	var b bytes.Buffer
	w := must(gzip.NewWriterLevel(&b, gzip.BestCompression))
	must(w.Write(content))
	if err := w.Close(); err != nil {
		panic(err)
	}
	return &document{contentType, cache, b.Bytes(), content}
}

func (w *response) writeDocument(d *document, gzip bool, now time.Time) {
	w.Status, w.outcome = 200, documentation
	w.begin(now, d.contentType, d.cache)
	w.Set("Content-Security-Policy", pagePolicy)
	w.Set("Referrer-Policy", "no-referrer")
	w.Set("X-Content-Type-Options", "nosniff")
	w.Set("Vary", "Accept-Encoding")
	w.Shared = d.plain
	if gzip {
		w.Set("Content-Encoding", "gzip")
		w.Shared = d.gzipped
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("invalid embedded documentation: %v", err))
	}
	return v
}

var openAPITemplate = text.Must(text.New("openapi.json.tmpl").Funcs(text.FuncMap{
	"failures": failureExamples,
}).ParseFS(docFiles, "docs/openapi.json.tmpl"))

// failureExamples keeps the order of errors.txt: servers that imitate ours answer with the first.
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
