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

// writeDocument writes the answer with d. If d is nil, the answer is 404; if the method is not GET
// or HEAD, 405. writeDocument ignores the query of the request.
func (w *response) writeDocument(r *request, d *document, h *head, now time.Time) {
	switch {
	case d == nil:
		w.fail(failPath)
		return
	case !isRead(r.method):
		w.fail(failMethod)
		return
	}
	w.status, w.outcome = 200, documentation
	w.begin(now, d.contentType, d.cache)
	w.set("Content-Security-Policy", pagePolicy)
	w.set("Referrer-Policy", "no-referrer")
	w.set("X-Content-Type-Options", "nosniff")
	if d.gzipped == nil {
		w.shared = d.plain
		return
	}
	w.set("Vary", "Accept-Encoding")
	if h.gzip {
		w.set("Content-Encoding", "gzip")
		w.shared = d.gzipped
	} else {
		w.shared = d.plain
	}
}
