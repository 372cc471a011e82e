package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
)

// feed follows a stream until it is stopped. It delivers the last record of each subject, and then
// each new record, in order and without gaps. It survives outages of NATS.
//
// It uses the ordered push consumer of the client library's legacy API, which notices a lost server
// when two of NATS's idle heartbeats are missing. With the newer API, a lost server can remain
// unnoticed for 16 s.
type feed struct {
	conn     *conn
	beat     *heartbeat // receives the stream's heartbeats; if nil, they are ignored
	stream   string
	filters  []string                 // subjects to follow
	newer    bool                     // accept records of a newer version; if false, they end the feed
	apply    func(store.Record) error // a final error (isFinal) ends the feed; after another, r comes again
	caughtUp func()                   // called once, after all records that existed at the start

	// longest is the longest time for which the feed may receive nothing; 0 means any.
	longest time.Duration

	last  uint64    // sequence of the newest applied record
	heard time.Time // when the newest record was applied
	live  bool      // the feed has caught up, and caughtUp was called
	goal  uint64    // the present lap ends when this sequence is applied (see feedLaps)
	lap   int       // how many laps have ended

	engine.Progress // lets other goroutines wait for the field last

	// created is when the stream from which the feed has read was created, in Unix ns. It is 0 if
	// the feed has never looked up the stream.
	created atomic.Int64
}

// newFeed returns a feed of those subjects of a stream that match one of the filters. If the stream
// is one of fedStreams, the feed also passes its heartbeats to c.beats[stream], from which Fed
// learns how old this node's copy of the stream is.
func (c *conn) newFeed(stream string, filters ...string) *feed {
	return &feed{conn: c, stream: stream, filters: filters, beat: c.beats[stream]}
}

const (
	// feedBackoff is the pause before a feed that has failed subscribes again.
	feedBackoff = 500 * time.Millisecond
	// feedLaps is the number of laps after which a feed counts as caught up, even if more records
	// are waiting. At the beginning of a lap, the feed looks up the last sequence of the stream.
	// The lap ends when the feed has delivered the record with that sequence or a later one. A
	// record that is replaced during a lap is not delivered in that lap; its replacement is
	// delivered later. The second lap is so short that almost no record is replaced during it.
	feedLaps = 2
	// feedSetup is the maximum time for the setup of a subscription that begins at the start of the
	// stream. It is long, because NATS then looks up the last record of each of millions of
	// subjects.
	feedSetup = 30 * time.Second
	// feedResume is the maximum time for the setup of a subscription that continues after a break.
	// Such a setup costs NATS almost nothing. The time is short, because the cluster may assign the
	// subscription to a server that has just stopped, and the feed must then repeat the request.
	feedResume = 2 * time.Second
)

// Run implements [store.Feed]. It returns an error if a record is damaged, if the stream was
// replaced, or if f.newer is false and a record of a newer version of carstate arrives. After any
// other error, it subscribes again, and continues with the first record that was not applied.
func (f *feed) Run(ctx context.Context, caughtUp func()) error {
	f.caughtUp = caughtUp
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if f.conn.isFinal(err) {
			return err
		}
		f.conn.log.Info("resubscribing a feed; nothing is lost", "stream", f.stream, "error", err)
		if periodic.Pause(ctx, feedBackoff) != nil {
			return nil
		}
	}
}

// follow subscribes to the stream once, and delivers records until the subscription fails or the
// context ends. It then returns the error, which is never nil.
func (f *feed) follow(ctx context.Context) error {
	info, err := f.conn.js.Stream(ctx, f.stream)
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
	sub, err := f.conn.subscribe(f.stream, wait, from, nats.ConsumerFilterSubjects(f.filters...))
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	pending, err := sub.InitialConsumerPending()
	if err != nil {
		return err
	}
	if pending == 0 {
		f.goLive()
	}
	for {
		// A live subscription always delivers something within Timeouts.Stall: stored records until
		// the feed has caught up, and then heartbeats or leases.
		waiting, cancel := context.WithTimeout(ctx, f.conn.config.Timeouts.Stall)
		m, meta, err := sub.receive(waiting)
		cancel()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream <= f.last {
			// If a consumer breaks before its first record, the client library restarts at the
			// beginning of the stream.
			continue
		}
		if err := f.take(store.Record{Subject: m.Subject, Seq: meta.Sequence.Stream, Sealed: m.Data}); err != nil {
			return fmt.Errorf("%s: record %d: %w", f.stream, meta.Sequence.Stream, err)
		}
		f.last, f.heard = meta.Sequence.Stream, time.Now()
		f.Advance(f.last)
		if err := f.progress(ctx, meta.NumPending); err != nil {
			return err
		}
	}
}

// take decodes a record and applies it. It ignores a heartbeat that a newer version of carstate
// wrote, because only this node's own heartbeats matter.
func (f *feed) take(r store.Record) (err error) {
	r.Body, err = codec.Unseal(r.Subject, r.Sealed)
	beat := r.Subject == codec.HeartbeatSubject(f.stream)
	r.Newer = codec.IsNewer(err)
	switch {
	case r.Newer && beat:
		return nil
	case r.Newer && f.newer:
		if _, lease := codec.MemberOf(r.Subject); !lease {
			f.conn.config.Newer.Note(f.stream, err)
		}
	case err != nil:
		return err
	case beat:
		if f.beat != nil {
			f.beat.observe(r.Body)
		}
		return nil
	}
	return f.apply(r)
}

// progress checks, after each record, whether the feed has caught up. pending is the number of
// records that NATS has yet to send. The feed has caught up if pending is 0. In a stream that is
// written to all the time, pending may never become 0, so the feed also counts as caught up after
// feedLaps laps. In one case, pending is 0 although one record has yet to be sent: when a record
// replaces another, NATS first decrements pending and then increments it.
func (f *feed) progress(ctx context.Context, pending uint64) error {
	switch {
	case f.live || pending != 0 && f.last < f.goal:
		return nil
	case pending != 0:
		f.lap++
	}
	if pending == 0 || f.lap == feedLaps {
		f.goLive()
		return nil
	}
	info, err := f.conn.js.Stream(ctx, f.stream)
	if err != nil {
		return err
	}
	f.goal = info.CachedInfo().State.LastSeq
	return nil
}

func (f *feed) goLive() {
	if !f.live {
		f.live = true
		f.caughtUp()
	}
}

// heartbeat writes this node's heartbeat into one stream, and records when the node's feed delivers
// the heartbeat. At that moment, the feed has delivered everything that was stored before the
// heartbeat. A heartbeat contains the time at which this node wrote it. Only this node reads that
// time, so the computed age of its copy of the stream does not depend on the clock of another node.
type heartbeat struct {
	conn   *conn
	stream string
	node   uint64 // identifies this node's heartbeats

	failing atomic.Bool // whether the last write failed
	start   time.Time   // time from which the numbers below are measured (monotonic)
	// returned is the time of the latest heartbeat that the feed has delivered, in ns after start.
	// The copy of the stream is complete up to that time. 0 means that the feed has delivered no
	// heartbeat yet.
	returned atomic.Int64
}

func newHeartbeat(c *conn, stream string) *heartbeat {
	return &heartbeat{conn: c, stream: stream, node: rand.Uint64(), start: time.Now()}
}

func (h *heartbeat) run(ctx context.Context) {
	for range periodic.NowAndEvery(ctx, h.conn.config.Timeouts.Beat) {
		h.beat(ctx)
	}
}

// beat writes one heartbeat. It gives up after Timeouts.Try, and stores in failing whether the
// write failed.
func (h *heartbeat) beat(ctx context.Context) {
	try, cancel := context.WithTimeout(ctx, h.conn.config.Timeouts.Try)
	defer cancel()
	began := time.Now()
	subject := codec.HeartbeatSubject(h.stream)
	b := binary.LittleEndian.AppendUint64([]byte{0}, h.node)
	b = binary.LittleEndian.AppendUint64(b, uint64(began.Sub(h.start)))
	_, err := h.conn.js.Publish(try, subject, codec.Seal(subject, b), jetstream.WithExpectStream(h.stream))
	switch {
	case err == nil:
		h.failing.Store(false)
	case ctx.Err() == nil:
		h.failing.Store(true)
	}
}

// observe processes the content of a heartbeat that the feed has delivered. It ignores heartbeats
// of other nodes.
func (h *heartbeat) observe(body []byte) {
	if len(body) == 16 && binary.LittleEndian.Uint64(body) == h.node {
		h.returned.Store(max(1, int64(binary.LittleEndian.Uint64(body[8:]))))
	}
}

// fed returns the time up to which this node's copy of the stream is complete (see returned). ok is
// false until the feed has delivered a heartbeat.
func (h *heartbeat) fed() (at time.Time, ok bool) {
	r := h.returned.Load()
	return h.start.Add(time.Duration(r)), r != 0
}

// subscription is a subscription to a stream by an ordered consumer.
type subscription struct {
	*nats.Subscription
	consumer string // name of the consumer; "" before the first message
}

// subscribe subscribes to a stream. If NATS does not create the consumer within the time wait,
// subscribe returns an error.
func (c *conn) subscribe(stream string, wait time.Duration, opts ...nats.SubOpt) (*subscription, error) {
	js, err := c.nc.JetStream(nats.MaxWait(wait))
	if err != nil {
		return nil, err
	}
	opts = append(opts, nats.OrderedConsumer(), nats.BindStream(stream), nats.IdleHeartbeat(c.config.Timeouts.Idle))
	sub, err := js.SubscribeSync("", opts...)
	if err != nil {
		return nil, err
	}
	// The consumer's flow control bounds the pending messages. A limit of the client library would
	// drop records instead.
	return &subscription{Subscription: sub}, sub.SetPendingLimits(-1, -1)
}

// readTelemetry subscribes to the commits of samples with the given subject, in order.
func (c *conn) readTelemetry(subject string, opts ...nats.SubOpt) (*subscription, error) {
	return c.subscribe(codec.Telemetry, requestTimeout, append(opts, nats.ConsumerFilterSubjects(subject))...)
}

// errConsumerChanged means that the server lost the consumer and that the client library has made
// another one. The library does not check whether the stream is still the same. So the caller must
// check the stream and subscribe again.
var errConsumerChanged = errors.New("the NATS server lost the consumer")

// receive waits for the next message of a subscription.
func receive(ctx context.Context, sub *nats.Subscription) (*nats.Msg, *nats.MsgMetadata, error) {
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, nil, err
	}
	meta, err := m.Metadata()
	return m, meta, err
}

// receive waits for the next message. If another consumer has sent it, the error is
// errConsumerChanged.
func (s *subscription) receive(ctx context.Context) (*nats.Msg, *nats.MsgMetadata, error) {
	m, meta, err := receive(ctx, s.Subscription)
	if err != nil {
		return nil, nil, err
	}
	if s.consumer != "" && meta.Consumer != s.consumer {
		return nil, nil, errConsumerChanged
	}
	s.consumer = meta.Consumer
	return m, meta, nil
}
