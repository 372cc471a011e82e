package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
)

// feed survives outages of NATS. The client library's legacy ordered consumer notices a lost server
// when two idle heartbeats are missing; with the newer API, that can take 16 s.
type feed struct {
	e        *Engine
	stream   string
	filters  []string
	scans    bool                     // it ends at a record of a newer version, and ignores heartbeats
	apply    func(store.Record) error // a final error (isFinal) ends the feed; after another, the record comes again
	caughtUp func()                   // called once, after all records that existed at the start

	longest time.Duration // the feed may receive nothing for so long; 0: any time

	last  uint64 // sequence of the newest applied record
	heard time.Time
	live  bool
	goal  uint64 // the present lap ends here (see lastLap)
	lap   int

	engine.Progress // follows last

	created atomic.Int64 // of the stream, Unix ns; 0 before it was looked up
}

const (
	feedBackoff = 500 * time.Millisecond
	// A lap ends at the sequence that was the stream's last at its beginning. A feed has caught up
	// at the end of its last lap. That lap begins once NATS has nothing more to send, or after two
	// laps, because others may write all the time; in the second, almost no record is replaced.
	lastLap   = 2
	feedSetup = 30 * time.Second // NATS first looks up the last records of millions of subjects.
	// To resume a feed costs NATS almost nothing, but the cluster may assign it to a server that
	// has just stopped.
	feedResume = 2 * time.Second
)

func (f *feed) Run(ctx context.Context, caughtUp func()) error {
	f.caughtUp = caughtUp
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if f.e.isFinal(err) {
			return err
		}
		f.e.config.Log.Info("resubscribing a feed; nothing is lost", "stream", f.stream, "error", err)
		if periodic.Pause(ctx, feedBackoff) != nil {
			return nil
		}
	}
}

// follow subscribes once. Its error is never nil.
func (f *feed) follow(ctx context.Context) error {
	info, err := f.e.js.Stream(ctx, f.stream)
	if err != nil {
		return err
	}
	created, last := info.CachedInfo().Created.UnixNano(), info.CachedInfo().State.LastSeq
	if f.last != 0 && (created != f.created.Load() || last < f.last) {
		return fmt.Errorf("%w: %s was read up to %d and now ends at %d", store.ErrReplaced, f.stream, f.last, last)
	}
	if silent := time.Since(f.heard); f.last != 0 && f.longest != 0 && silent > f.longest {
		return fmt.Errorf("%w: no record of %s came for %s, "+
			"and a vehicle forgotten in that time may have left no trace",
			store.ErrReplaced, f.stream, silent.Round(time.Second))
	}
	f.created.Store(created)
	if !f.live {
		f.goal = last
	}

	wait, from := feedResume, nats.StartSequence(f.last+1)
	if f.last == 0 {
		wait, from = feedSetup, nats.DeliverLastPerSubject()
	}
	sub, err := f.e.subscribe(f.stream, wait, from, nats.ConsumerFilterSubjects(f.filters...))
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	pending, err := sub.InitialConsumerPending()
	if err != nil {
		return err
	}
	for {
		if err := f.progress(ctx, pending); err != nil {
			return err
		}
		m, err := sub.receive(ctx) // at least heartbeats or leases come
		if err != nil {
			return err
		}
		if pending = m.NumPending; m.seq() <= f.last {
			// If a consumer breaks before its first record, the client library restarts at the
			// beginning of the stream.
			continue
		}
		if err := f.take(m); err != nil {
			return fmt.Errorf("%s: record %d: %w", f.stream, m.seq(), err)
		}
		f.last, f.heard = m.seq(), time.Now()
		f.Advance(f.last)
	}
}

func (f *feed) take(m message) error {
	r, err := unseal(m.Subject, m.seq(), m.Data)
	beat := r.Subject == codec.HeartbeatSubject(f.stream)
	r.Newer = codec.IsNewer(err)
	switch {
	case r.Newer && beat:
		return nil
	case r.Newer && !f.scans:
		if _, lease := codec.MemberOf(r.Subject); !lease {
			f.e.config.Newer.Note(f.stream, err)
		}
	case err != nil:
		return err
	case beat:
		if !f.scans {
			f.e.observe(f.stream, r.Body)
		}
		return nil
	}
	return f.apply(r)
}

// pending, what NATS has yet to send, may never be 0 in a busy stream. It may be 0 although one
// record is missing: when a record replaces another, NATS first decrements and then increments it.
func (f *feed) progress(ctx context.Context, pending uint64) error {
	for !f.live && (f.last >= f.goal || pending == 0 && f.lap < lastLap) {
		if f.lap == lastLap {
			f.live = true
			f.caughtUp()
			return nil
		}
		info, err := f.e.js.Stream(ctx, f.stream)
		if err != nil {
			return err
		}
		f.goal = info.CachedInfo().State.LastSeq
		if f.lap++; pending == 0 {
			f.lap = lastLap
		}
	}
	return nil
}

func (e *Engine) sendHeartbeats(ctx context.Context, i int) {
	stream := e.configs[i].Name
	subject := codec.HeartbeatSubject(stream)
	for range periodic.NowAndEvery(ctx, e.config.Timeouts.Beat) {
		try, cancel := context.WithTimeout(ctx, e.config.Timeouts.Try)
		b := binary.LittleEndian.AppendUint64([]byte{0}, e.node)
		b = binary.LittleEndian.AppendUint64(b, uint64(time.Since(e.began)))
		_, err := e.js.Publish(try, subject, codec.Seal(subject, b), jetstream.WithExpectStream(stream))
		cancel()
		if err == nil || ctx.Err() == nil {
			e.failing[i].Store(err != nil)
		}
	}
}

func (e *Engine) observe(stream string, heartbeat []byte) {
	if len(heartbeat) == 16 && binary.LittleEndian.Uint64(heartbeat) == e.node {
		e.returned[stream].Store(max(1, int64(binary.LittleEndian.Uint64(heartbeat[8:]))))
	}
}

// When a feed delivers this node's heartbeat, it has delivered everything that was stored before.
func (e *Engine) fed(stream string) (at time.Time, ok bool) {
	r := e.returned[stream].Load()
	return e.began.Add(time.Duration(r)), r != 0
}

// A live subscription that is silent for stall may have failed.
type subscription struct {
	*nats.Subscription
	stall    time.Duration
	consumer string // its name; "" before the first message
}

type message struct {
	*nats.Msg
	*nats.MsgMetadata
}

func (m message) seq() uint64 { return m.Sequence.Stream }

func (e *Engine) subscribe(stream string, wait time.Duration, opts ...nats.SubOpt) (*subscription, error) {
	js, err := e.nc.JetStream(nats.MaxWait(wait))
	if err != nil {
		return nil, err
	}
	beat := e.config.Timeouts.Beat
	idle := nats.IdleHeartbeat(max(beat/2, 100*time.Millisecond)) // NATS takes no less
	opts = append(opts, nats.OrderedConsumer(), nats.BindStream(stream), idle)
	sub, err := js.SubscribeSync("", opts...)
	if err != nil {
		return nil, err
	}
	// A limit of the client library would drop records. The consumer's flow control bounds what waits.
	return &subscription{Subscription: sub, stall: stallBeats * beat}, sub.SetPendingLimits(-1, -1)
}

// If NATS lost the consumer, the caller must subscribe again, and check that the stream is the same:
// the client library has made another consumer without a check.
var errConsumerLost = errors.New("the NATS server lost the consumer")

func (s *subscription) receive(ctx context.Context) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.stall)
	defer cancel()
	m, err := s.NextMsgWithContext(ctx)
	if err != nil {
		return message{}, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return message{}, err
	}
	if s.consumer != "" && meta.Consumer != s.consumer {
		return message{}, errConsumerLost
	}
	s.consumer = meta.Consumer
	return message{m, meta}, nil
}

// read yields what the stream has now, and any error at the end.
func (e *Engine) read(ctx context.Context, stream string, opts ...nats.SubOpt) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		sub, err := e.subscribe(stream, requestTimeout, opts...)
		if err != nil {
			yield(message{}, err)
			return
		}
		defer sub.Unsubscribe()
		var m message
		left, err := sub.InitialConsumerPending()
		for err == nil && left > 0 {
			if m, err = sub.receive(ctx); err == nil {
				left = m.NumPending
				if !yield(m, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(message{}, err)
		}
	}
}
