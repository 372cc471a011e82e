package admin

import (
	"bytes"
	"errors"
	"log/slog"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lograte"
)

// A line that begins with clientFault may repeat what any client sent, so it is logged at level
// debug.
const clientFault = "http: TLS handshake error "

type serverLog struct {
	log   *slog.Logger
	quiet *lograte.Warning
}

func (s serverLog) Write(line []byte) (int, error) {
	text := access.OneLine(errors.New(string(line)))
	if bytes.HasPrefix(line, []byte(clientFault)) {
		s.log.Debug(text)
		return len(line), nil
	}
	s.quiet.Log(s.log, text)
	return len(line), nil
}
