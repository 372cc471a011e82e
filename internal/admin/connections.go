package admin

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
)

// maxConnections is far more than operators, their pages and their scrapers have.
// It keeps whoever can reach the listener from taking the descriptors that the
// other listeners need.
const maxConnections = 512

// limitConnections closes a connection that is one too many as soon as it is made.
func limitConnections() func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > maxConnections {
				c.Close()
			}
		case http.StateClosed:
			open.Add(-1)
		}
	}
}

// serverLog takes what net/http says. A handshake that fails is the caller's
// fault and needs no login: at more than debug, scanners would fill the log.
type serverLog struct{ log *slog.Logger }

func newServerLog(l *slog.Logger) *log.Logger { return log.New(serverLog{l}, "", 0) }

func (s serverLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, []byte("http: TLS handshake error ")) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, string(bytes.TrimRight(line, "\n")))
	return len(line), nil
}
