package ops

import (
	"io"
	"net/http"
	"time"
)

// stallTimeout is how long a backup or an export may make no progress.
const stallTimeout = time.Minute

// Moving is a reader and writer that extends the deadlines of its connection at every call, so that
// a transfer may take as long as it makes progress.
type Moving struct {
	W io.Writer
	R io.Reader
	C *http.ResponseController
}

// Read reads from R.
func (m Moving) Read(p []byte) (int, error) {
	if err := m.C.SetReadDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return m.R.Read(p)
}

// Write writes to W.
func (m Moving) Write(p []byte) (int, error) {
	if err := m.extend(); err != nil {
		return 0, err
	}
	return m.W.Write(p)
}

// extend sets the write deadline as a Write does, for a caller that has nothing to write yet.
func (m Moving) extend() error { return m.C.SetWriteDeadline(time.Now().Add(stallTimeout)) }
