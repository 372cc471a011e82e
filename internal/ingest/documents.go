package ingest

import (
	"embed"
	"net/http"

	"example.org/carstate/internal/listen"
)

//go:embed docs
var docFiles embed.FS

type document struct{ name, contentType string }

var documents = map[string]document{
	"/":              {"page.html", "text/html; charset=utf-8"},
	"/page.css":      {"page.css", "text/css; charset=utf-8"},
	"/openapi.json":  {"openapi.json", "application/json"},
	"/asyncapi.json": {"asyncapi.json", "application/json"},
}

func (d document) send(w http.ResponseWriter) outcome {
	body, _ := docFiles.ReadFile("docs/" + d.name) // no error: embedded
	w.Header().Set("Content-Type", d.contentType)
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	listen.Send(w, body)
	return documented
}
