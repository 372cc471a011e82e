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

// EventStream is a response of server-sent events. [NewEventStream] begins one.
type EventStream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// eventTimeout is the time after which a client that does not read is disconnected.
const eventTimeout = 10 * time.Second

// NewEventStream sets the headers of the response, and lets it last longer than the server's
// timeouts.
func NewEventStream(w http.ResponseWriter) (EventStream, error) {
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	return EventStream{w, c}, c.SetReadDeadline(time.Time{})
}

// Send sends events. After an error, the client has disconnected or does not read.
func (s EventStream) Send(events string) error {
	if err := s.c.SetWriteDeadline(time.Now().Add(eventTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(s.w, events); err != nil {
		return err
	}
	return s.c.Flush()
}
