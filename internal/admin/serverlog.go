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

// lines is how many lines callers without a key may cause in the log, all together.
var lines = access.Rate{Calls: 10, Window: time.Minute}

// quietLog logs what callers without a key cause. A line beyond the rate is left out, and the
// next line that is written counts those.
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

// clientFaults begin the log lines of net/http for a connection that fails before it is a
// request. They need no login, and some repeat what the client sent: they are logged at debug.
var clientFaults = [][]byte{[]byte("http: TLS handshake error "), []byte("http2: ")}

// serverLog takes the log lines of net/http.
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
