package ops

import (
	"io"
	"net/http"
	"time"
)

// stallTimeout is the maximum time without progress of a backup or an export.
const stallTimeout = time.Minute

// Moving is a reader and writer that extends the deadlines of its connection at every call. So a
// transfer may take any time as long as it makes progress.
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

// extend sets the write deadline as Write does. It is for a caller that has nothing to write yet.
func (m Moving) extend() error { return m.C.SetWriteDeadline(time.Now().Add(stallTimeout)) }
