package ops

import (
	"io"
	"net/http"
	"time"
)

// stallTimeout is the maximum time without progress of a backup, a restore or an export.
const stallTimeout = time.Minute

// Moving is a reader and writer for long transfers: each Read or Write first extends the
// connection's deadline to stallTimeout from now, so only a transfer without progress fails.
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

// extend extends the connection's write deadline, as Write does. It is for a caller that makes
// progress but has nothing to write yet.
func (m Moving) extend() error { return m.C.SetWriteDeadline(time.Now().Add(stallTimeout)) }
