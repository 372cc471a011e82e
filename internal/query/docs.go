package query

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	swagger "github.com/swaggest/swgui/v5/static"
)

// docFiles are the documentation as it is written; the *.tmpl are completed by
// docpage.go and openapi.go.
//
//go:embed docs
var docFiles embed.FS

// What our own page may do: load from here, call here, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// referencePolicy adds what Swagger UI cannot do without.
const referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Pages are asked for anew each time, so that they are never older than the
// service. What they load may be kept for as long as a reader stays.
const (
	cachePage  = "no-cache"
	cacheAsset = "public, max-age=3600"
)

// newDocuments makes the documentation of a service whose readings count for
// maxAge. What it embeds is part of the binary, so there is no error but a bug.
func newDocuments(maxAge time.Duration) documents {
	return documents{
		"/":                     ours("page.html.tmpl", renderPage(maxAge), cachePage, pagePolicy),
		"/openapi.json":         ours("openapi.json.tmpl", renderOpenAPI(), cachePage, pagePolicy),
		"/assets/page.css":      asset("page.css"),
		"/assets/page.js":       asset("page.js"),
		"/assets/icon.svg":      asset("icon.svg"),
		"/assets/reference.css": asset("reference.css"),
		"/assets/reference.js":  asset("reference.js"),

		"/reference/":                     ours("reference.html", read("reference.html"), cachePage, referencePolicy),
		"/reference/swagger-ui.css":       theirs("swagger-ui.css"),
		"/reference/swagger-ui-bundle.js": theirs("swagger-ui-bundle.js"),
	}
}

func read(name string) []byte {
	return must(docFiles.ReadFile("docs/" + name))
}

func asset(name string) *document {
	return ours(name, read(name), cacheAsset, pagePolicy)
}

// ours is a document of our own.
func ours(name string, content []byte, cache, policy string) *document {
	return &document{
		contentType: contentType(strings.TrimSuffix(name, ".tmpl")),
		cache:       cache,
		policy:      policy,
		gzipped:     compress(content),
		plain:       func() []byte { return content },
	}
}

// theirs is a file of Swagger UI, which comes compressed. Hardly anyone needs it
// plain, so it is unpacked for the first who does.
func theirs(name string) *document {
	gzipped := must(swagger.FS.ReadFile(name + ".gz"))
	return &document{
		contentType: contentType(name),
		cache:       cacheAsset,
		policy:      referencePolicy,
		gzipped:     gzipped,
		plain: sync.OnceValue(func() []byte {
			return must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(gzipped)))))
		}),
	}
}

func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".json":
		return "application/json"
	case ".svg":
		return "image/svg+xml"
	}
	panic("nothing says what " + name + " is")
}

// compress returns content in gzip, or nil if that gains less than a tenth.
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

// must is for what only a bug in the embedded documentation can break.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("the documentation is broken: %v", err))
	}
	return v
}
