package ops

import (
	"context"
	"io"
	"net/http"
	"time"
)

const stallTimeout = time.Minute

// Moving moves the connection's deadline with each Read or Write, so only a transfer without
// progress fails. Where a deadline cannot be set, the connection has failed.
type Moving struct {
	W http.ResponseWriter
	R io.Reader
}

func (m Moving) Read(p []byte) (int, error) {
	_ = http.NewResponseController(m.W).SetReadDeadline(time.Now().Add(stallTimeout))
	return m.R.Read(p)
}

func (m Moving) Write(p []byte) (int, error) {
	m.extend()
	return m.W.Write(p)
}

// extend is for a transfer that progresses without writing.
func (m Moving) extend() {
	_ = http.NewResponseController(m.W).SetWriteDeadline(time.Now().Add(stallTimeout))
}

type EventStream struct {
	w       http.ResponseWriter
	c       *http.ResponseController
	closing <-chan struct{}
	sent    time.Time
}

func (p *Operations) NewEventStream(w http.ResponseWriter) *EventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	return &EventStream{w: w, c: c, closing: p.closing.Done()}
}

func (s *EventStream) Send(events string) error {
	s.sent = time.Now()
	_ = s.c.SetWriteDeadline(s.sent.Add(10 * time.Second))
	if _, err := io.WriteString(s.w, events); err != nil {
		return err
	}
	return s.c.Flush()
}

// Silent reports whether a sign of life is due, so that no proxy closes the connection.
func (s *EventStream) Silent() bool { return time.Since(s.sent) >= 15*time.Second }

// Wait returns false if the stream must end: with ctx, or because of [Operations.Close].
func (s *EventStream) Wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
	case <-s.closing:
	}
	return false
}
