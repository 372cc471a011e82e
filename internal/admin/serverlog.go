package admin

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"carstate/internal/access"
)

// lines limits the number of log lines that all callers without a key cause together.
var lines = access.Rate{Calls: 10, Window: time.Minute}

// quietLog logs events that callers without a key can cause, with a rate limit. Lines beyond the
// limit are dropped. The next line that is logged reports how many were dropped before it.
type quietLog struct {
	log     *slog.Logger
	now     func() time.Time
	left    access.Budget
	leftOut atomic.Int64
}

func (q *quietLog) warn(text string, args ...any) {
	if _, _, ok := q.left.Take(lines, q.now()); !ok {
		q.leftOut.Add(1)
		return
	}
	if n := q.leftOut.Swap(0); n > 0 {
		args = append(args, "left_out_before", n)
	}
	q.log.Warn(text, args...)
}

// clientFaults are prefixes of net/http's log lines about connections that fail before a request.
// Any client can cause such lines without login, and some of the lines repeat what the client sent.
// They are logged at level debug.
var clientFaults = [][]byte{[]byte("http: TLS handshake error "), []byte("http2: ")}

// serverLog is the destination of net/http's log lines.
type serverLog struct{ *quietLog }

func newServerLog(q *quietLog) *log.Logger { return log.New(serverLog{q}, "", 0) }

func (s serverLog) Write(line []byte) (int, error) {
	text := access.OneLine(errors.New(string(line)))
	for _, prefix := range clientFaults {
		if bytes.HasPrefix(line, prefix) {
			s.log.Log(context.Background(), slog.LevelDebug, text)
			return len(line), nil
		}
	}
	s.warn(text)
	return len(line), nil
}
