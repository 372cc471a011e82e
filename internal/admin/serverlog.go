package admin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lograte"
)

// clientFault begins a line of net/http about a connection that failed before a request. Any client
// can cause it, and it may repeat what the client sent, so it is logged at level debug.
const clientFault = "http: TLS handshake error "

// serverLog is the destination of net/http's log lines.
type serverLog struct {
	log   *slog.Logger
	quiet *lograte.Warning
}

func (s serverLog) Write(line []byte) (int, error) {
	text := access.OneLine(errors.New(string(line)))
	if bytes.HasPrefix(line, []byte(clientFault)) {
		s.log.Log(context.Background(), slog.LevelDebug, text)
		return len(line), nil
	}
	s.quiet.Log(s.log, text)
	return len(line), nil
}
