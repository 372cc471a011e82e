package ops

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const stallTimeout = time.Minute

// Moving moves the connection's deadline with each Read or Write, so only a transfer without
// progress fails. If a deadline cannot be set, the connection has failed, as Read or Write reports.
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

// ServeEvents sends events, and after each pause what next returns. If silent, a sign of life is
// due, so that no proxy closes the connection. It ends after the last events, if the client reads
// too slowly, with the context of r, or because of [Operations.Close].
func (p *Operations) ServeEvents(
	w http.ResponseWriter, r *http.Request, events string,
	next func(silent bool) (events string, pause time.Duration, last bool),
) {
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	if r.Method == http.MethodHead {
		return
	}
	sent, pause, last := time.Now(), time.Duration(0), false
	for {
		if events != "" {
			sent = time.Now()
			_ = c.SetWriteDeadline(sent.Add(10 * time.Second))
			_, err := io.WriteString(w, events)
			if errors.Join(err, c.Flush()) != nil {
				return
			}
		}
		if last {
			return
		}
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
			return
		case <-p.closing.Done():
			return
		}
		events, pause, last = next(time.Since(sent) >= 15*time.Second)
	}
}
