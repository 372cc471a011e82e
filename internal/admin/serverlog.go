package admin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lograte"
)

// clientFaults are prefixes of lines of net/http about connections that failed before a request.
// Any client can cause them, and some repeat what it sent, so they are logged at level debug.
var clientFaults = [][]byte{[]byte("http: TLS handshake error "), []byte("http2: ")}

// serverLog is the destination of net/http's log lines.
type serverLog struct {
	log   *slog.Logger
	quiet *lograte.Warning
}

func (s serverLog) Write(line []byte) (int, error) {
	text := access.OneLine(errors.New(string(line)))
	for _, prefix := range clientFaults {
		if bytes.HasPrefix(line, prefix) {
			s.log.Log(context.Background(), slog.LevelDebug, text)
			return len(line), nil
		}
	}
	s.quiet.Log(s.log, text)
	return len(line), nil
}
