package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store/codec"
	"carstate/internal/ticks"
)

// heartbeat writes this node's heartbeat into one stream and notes when it
// comes back on the feed, which then has brought all that was stored before. What came back was written at a known moment of this
// node's own clock, so the age of the copy needs no clock of another node.
type heartbeat struct {
	e      *Engine
	stream string
	node   uint64 // tells our heartbeats from those of other nodes

	start    time.Time    // monotonic origin of the numbers below
	returned atomic.Int64 // ns after start: the newest moment of which the copy holds everything; 0: none yet
}

func newHeartbeat(e *Engine, stream string) *heartbeat {
	return &heartbeat{e: e, stream: stream, node: rand.Uint64(), start: time.Now()}
}

func (h *heartbeat) run(ctx context.Context) {
	for range ticks.NowAndEvery(ctx, h.e.config.Timeouts.Beat) {
		h.beat(ctx)
	}
}

// beat writes one heartbeat.
func (h *heartbeat) beat(ctx context.Context) {
	try, cancel := context.WithTimeout(ctx, h.e.config.Timeouts.Try)
	defer cancel()
	began := time.Now()
	subject := codec.HeartbeatSubject(h.stream)
	b := binary.LittleEndian.AppendUint64([]byte{0}, h.node)
	b = binary.LittleEndian.AppendUint64(b, uint64(began.Sub(h.start)))
	ack, err := h.e.js.Publish(try, subject, codec.Seal(subject, b), jetstream.WithExpectStream(h.stream))
	switch {
	case err == nil:
		if h.stream == codec.States {
			h.e.noteState(ack.Sequence)
		}
		h.e.writes[h.stream].Store(false)
	case ctx.Err() == nil:
		h.e.writes[h.stream].Store(true)
	}
}

// full reports whether a write was refused because its stream has no room.
func full(err error) bool {
	const storeFailed = 10077
	api, ok := asAPIError(err)
	return ok && api.ErrorCode == storeFailed && strings.Contains(api.Description, "maximum bytes")
}

// stillInProcess reports whether a write was refused because the engine is at
// work on an earlier one with the same id.
func stillInProcess(err error) bool {
	const duplicateInProcess = 10158
	api, ok := asAPIError(err)
	return ok && api.ErrorCode == duplicateInProcess
}

// refused reports whether the engine itself said no, as opposed to not
// answering.
func refused(err error) bool {
	_, ok := asAPIError(err)
	return ok
}

func asAPIError(err error) (*jetstream.APIError, bool) {
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return js.APIError(), true
	}
	return nil, false
}

// observe takes a heartbeat record off the feed.
func (h *heartbeat) observe(body []byte) {
	if len(body) >= codec.HeartbeatBytes && binary.LittleEndian.Uint64(body) == h.node {
		h.returned.Store(max(1, int64(binary.LittleEndian.Uint64(body[8:]))))
	}
}

// age is how old this node's copy of the stream may be; ok is false before the
// first heartbeat came back.
func (h *heartbeat) age() (d time.Duration, ok bool) {
	r := h.returned.Load()
	return time.Since(h.start) - time.Duration(r), r != 0
}

// Fed is the newest moment of which this node's copies of all fed streams hold
// everything; ok is false before every feed has caught up. It neither blocks nor
// allocates.
func (e *Engine) Fed() (at time.Time, ok bool) {
	for _, name := range fedStreams {
		h := e.beats[name]
		r := h.returned.Load()
		if r == 0 {
			return time.Time{}, false
		}
		if t := h.start.Add(time.Duration(r)); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at, true
}

// FeedAge is how old this node's copy of the worst of the fed streams may be.
// It is an error before every feed has caught up.
func (e *Engine) FeedAge() (time.Duration, error) {
	worst := time.Duration(0)
	for _, name := range fedStreams {
		age, ok := e.beats[name].age()
		if !ok {
			return 0, fmt.Errorf("the feed of %s has not caught up yet", name)
		}
		worst = max(worst, age)
	}
	return worst, nil
}
