package query

import "time"

// document is one file of the public documentation. It never changes, so answers may share it.
type document struct {
	contentType string
	cache       string // the value of Cache-Control
	gzipped     []byte // the content in gzip; nil if compression saves too little
	plain       []byte // the uncompressed content
}

// documents maps the paths of the public documentation to their documents.
type documents map[string]*document

// writeDocument writes the answer with d, in gzip if the client accepts it.
func (w *response) writeDocument(d *document, gzip bool, now time.Time) {
	w.Status, w.outcome = 200, documentation
	w.begin(now, d.contentType, d.cache)
	w.Set("Content-Security-Policy", pagePolicy)
	w.Set("Referrer-Policy", "no-referrer")
	w.Set("X-Content-Type-Options", "nosniff")
	w.Shared = d.plain
	if d.gzipped == nil {
		return
	}
	w.Set("Vary", "Accept-Encoding")
	if gzip {
		w.Set("Content-Encoding", "gzip")
		w.Shared = d.gzipped
	}
}
