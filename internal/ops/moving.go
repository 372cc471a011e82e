package ops

import (
	"io"
	"net/http"
	"time"
)

// stallTimeout is how long a backup or an export may stand still on its way.
const stallTimeout = time.Minute

// Moving extends the deadlines of a listener for as long as something moves.
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

// extend allows as much time as a Write, when there is nothing to write yet.
func (m Moving) extend() error { return m.C.SetWriteDeadline(time.Now().Add(stallTimeout)) }
