package query

import "time"

// document never changes, so answers share it.
type document struct {
	contentType string
	cache       string
	gzipped     []byte
	plain       []byte
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
