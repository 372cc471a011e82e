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

// docFiles holds the source files of the documentation. docpage.go and openapi.go render the
// templates (*.tmpl), and docerrors.go reads the texts about failures (errors.txt).
//
//go:embed docs
var docFiles embed.FS

// pagePolicy is the Content-Security-Policy of our own pages. It permits a page to load files from
// this service and to call it, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// referencePolicy is the Content-Security-Policy of the page with Swagger UI. In addition to
// pagePolicy, it permits the inline styles and data: images that Swagger UI needs.
const referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Values of Cache-Control. A browser must revalidate a page at each use, so that it does not show
// an old page after the service was updated. It may cache the files that a page loads for an hour.
const (
	cachePage  = "no-cache"
	cacheAsset = "public, max-age=3600"
)

// newDocuments returns the public documentation, which states maxAge, the maximum age of a verdict
// that is answered. It panics if a file is missing or a template fails, which only a bug can cause.
func newDocuments(maxAge time.Duration) documents {
	return documents{
		"/":                     ownDocument("page.html.tmpl", renderPage(maxAge), cachePage, pagePolicy),
		"/openapi.json":         ownDocument("openapi.json.tmpl", renderOpenAPI(), cachePage, pagePolicy),
		"/assets/page.css":      asset("page.css"),
		"/assets/page.js":       asset("page.js"),
		"/assets/icon.svg":      asset("icon.svg"),
		"/assets/reference.css": asset("reference.css"),
		"/assets/reference.js":  asset("reference.js"),

		"/reference/": ownDocument("reference.html", readDocFile("reference.html"),
			cachePage, referencePolicy),
		"/reference/swagger-ui.css":       swaggerDocument("swagger-ui.css"),
		"/reference/swagger-ui-bundle.js": swaggerDocument("swagger-ui-bundle.js"),
	}
}

func readDocFile(name string) []byte {
	return must(docFiles.ReadFile("docs/" + name))
}

func asset(name string) *document {
	return ownDocument(name, readDocFile(name), cacheAsset, pagePolicy)
}

// ownDocument returns a document that this project wrote. cache and policy are the values of its
// headers Cache-Control and Content-Security-Policy.
func ownDocument(name string, content []byte, cache, policy string) *document {
	return &document{
		contentType: contentType(strings.TrimSuffix(name, ".tmpl")),
		cache:       cache,
		policy:      policy,
		gzipped:     compress(content),
		plain:       func() []byte { return content },
	}
}

// swaggerDocument returns a file of Swagger UI. The file is embedded in compressed form. It is
// decompressed only when a client that does not accept gzip asks for it, which is rare.
func swaggerDocument(name string) *document {
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
	panic("no content type for " + name)
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

// must returns v. It panics if err is not nil, which only a bug in the embedded
// documentation can cause.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("invalid embedded documentation: %v", err))
	}
	return v
}
