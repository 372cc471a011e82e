package query

import (
	"time"
)

// document is one file of the public documentation, ready to be sent. It is
// never changed, so that any number of answers may send it at once.
type document struct {
	contentType string
	cache       string // Cache-Control
	policy      string // Content-Security-Policy
	gzipped     []byte // nil where compression gains nothing
	plain       func() []byte
}

// documents are the public documentation by path.
type documents map[string]*document

// documentTimeout is how long a document may take to be written: the largest has
// 400 KB, and its reader may sit in a train.
const documentTimeout = 30 * time.Second

// document answers with d, or says that there is nothing. The query, if any, is
// not looked at.
func (a *answerer) document(r *request, d *document, h *head, w *response) {
	switch {
	case d == nil:
		w.fail(failPath)
		return
	case !reads(r.method):
		w.fail(failMethod)
		return
	case r.overloaded:
		w.fail(failOverloaded)
		return
	}
	w.status, w.outcome = 200, documentation
	w.replace("Content-Type", d.contentType)
	w.replace("Cache-Control", d.cache)
	w.set("Content-Security-Policy", d.policy)
	w.set("Referrer-Policy", "no-referrer")
	w.set("X-Content-Type-Options", "nosniff")
	if d.gzipped == nil {
		w.shared = d.plain()
		return
	}
	w.set("Vary", "Accept-Encoding")
	if h.gzip {
		w.set("Content-Encoding", "gzip")
		w.shared = d.gzipped
	} else {
		w.shared = d.plain()
	}
}
