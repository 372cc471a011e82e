package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
)

//go:embed files
var files embed.FS

var assets = map[string]string{
	"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8",
	"roads.js": "text/javascript; charset=utf-8",
	"icon.svg": "image/svg+xml",
}

// assetVersion is part of the URLs of assets, so that a browser may cache them.
var assetVersion = func() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		text, _ := files.ReadFile("files/" + name)
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}()

func asset(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "private, max-age=86400")
		http.ServeFileFS(w, r, files, "files/"+name)
	}
}
