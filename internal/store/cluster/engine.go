package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"carstate/internal/access"
	"carstate/internal/seldom"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/ticks"
)

var (
	_ store.Engine      = (*Engine)(nil)
	_ store.RoadSharing = (*Engine)(nil)
)

// Engine is an open store. Make one with [Open], end it with [Engine.Close].
type Engine struct {
	config     Config
	partitions int
	log        *slog.Logger
	now        func() time.Time

	node   *store.NodeName
	nc     *nats.Conn
	js     jetstream.JetStream
	legacy nats.JetStreamContext // only this one has ordered push consumers

	committers []*committer
	batches    chan struct{} // holds a token for each atomic batch under way
	backlog    backlog
	writes     map[string]*atomic.Bool // of watchedStreams: whether the last write failed
	beats      map[string]*heartbeat
	committing atomic.Int32 // commits of samples under way
	warned     warned
	newest     atomic.Uint64 // sequence in STATES of the newest record that was acknowledged to this process
	metrics    *metrics

	// forgotten is this node's copy of the tombstones, which stones feeds once
	// a keeper runs; followed is the feed of FollowStates.
	forgotten        access.Forgotten
	stones, followed atomic.Pointer[feed]
	taken            sync.Map // by number: *Partition, taken by this node

	// needed is set from start until Close or Cut: a connection that is closed
	// meanwhile was not closed by us.
	needed atomic.Bool

	// denied ends the opening of the engine for what the cluster forbids.
	denied atomic.Pointer[context.CancelCauseFunc]

	stop    context.CancelFunc // ends what runs in the background
	running sync.WaitGroup
	failed  chan error
	failure atomic.Pointer[error]
}

// Open opens the store that the configuration names and makes its streams at
// the first start. On an error nothing is left running. It panics without
// [Config.URLs].
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	if c.URLs == "" {
		panic("cluster: a configuration without URLs")
	}
	c = c.withDefaults()
	e := &Engine{config: c, log: c.Log, now: c.Now, failed: make(chan error, 1), batches: make(chan struct{}, openBatches)}
	if err = e.connect(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.nc.Close()
		}
	}()
	if e.js, err = jetstream.New(e.nc); err != nil {
		return nil, err
	}
	if e.legacy, err = e.nc.JetStream(); err != nil {
		return nil, err
	}
	// What the cluster forbids ends everything that waits for an answer.
	opening := ctx
	ctx, deny := context.WithCancelCause(ctx)
	defer deny(nil)
	e.denied.Store(&deny)
	defer e.denied.Store(nil)
	defer func() {
		if d, ok := errors.AsType[denial](context.Cause(ctx)); ok && err != nil && opening.Err() == nil {
			err = d
		}
	}()
	if err = e.checkServer(ctx); err != nil {
		return nil, err
	}
	if e.nc.MaxPayload() < payloadBytes {
		return nil, fmt.Errorf("the NATS cluster takes messages of %d bytes at most: set its max_payload to 1MB or more", e.nc.MaxPayload())
	}
	if e.partitions, err = ensureStreams(ctx, e.js, c); err != nil {
		return nil, err
	}
	if err = e.probeRights(ctx, streamConfigs(c, made{partitions: e.partitions})); err != nil {
		return nil, err
	}
	err = patiently(ctx, func(ctx context.Context) error { return store.LoadVIDKeys(ctx, e, &e.forgotten) })
	if unled(err) && ctx.Err() == nil {
		err = errUnled
	}
	if err != nil {
		return nil, err
	}
	e.node = store.OpenNodeName(c.DataDir, c.Log)
	e.start()
	return e, nil
}

// start sets going what runs until Close.
func (e *Engine) start() {
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	e.metrics = newMetrics(e.config.Registry, e)
	e.beats = make(map[string]*heartbeat)
	e.writes = make(map[string]*atomic.Bool)
	for _, name := range watchedStreams {
		e.writes[name] = new(atomic.Bool)
	}
	e.backlog.init(e.partitions)
	for p := range e.partitions {
		c := newCommitter(e, p)
		e.committers = append(e.committers, c)
		e.running.Go(func() { c.run(ctx) })
	}
	for _, name := range fedStreams {
		b := newHeartbeat(e, name)
		e.beats[name] = b
		e.running.Go(func() { b.run(ctx) })
	}
	e.running.Go(func() { e.watchBacklog(ctx) })
	e.running.Go(func() { e.tryTelemetry(ctx) })
	e.needed.Store(true)
	if e.nc.IsClosed() {
		e.onClosed(e.nc)
	}
}

// Cut ends the connection to the engine, so that whatever still waits for an
// answer fails now. Only Close may follow.
func (e *Engine) Cut() {
	e.needed.Store(false)
	e.nc.Close()
}

// Close ends everything in order, the connection last. Samples whose Append has not
// returned are not acknowledged.
func (e *Engine) Close() error {
	e.stop()
	e.running.Wait()
	e.Cut()
	e.node.Close()
	return nil
}

// noteState notes that a record of STATES was acknowledged.
func (e *Engine) noteState(seq uint64) {
	for last := e.newest.Load(); seq > last; last = e.newest.Load() {
		if e.newest.CompareAndSwap(last, seq) {
			return
		}
	}
}

// NodeID is the name under which this node stores what only it has counted.
func (e *Engine) NodeID() string { return e.node.ID }

// Partitions is the number of partitions, fixed when the streams were made.
func (e *Engine) Partitions() int { return e.partitions }

// Failed yields one error when the engine can no longer store anything and
// only a restart helps.
func (e *Engine) Failed() <-chan error { return e.failed }

// fail reports the first failure of which only a restart is the cure.
func (e *Engine) fail(err error) {
	if e.failure.CompareAndSwap(nil, &err) {
		e.log.Error("the engine failed", "error", err)
		e.failed <- err
	}
}

// warned is what lasts as long as an outage does, for all partitions together.
type warned struct{ fold, commit, backlog, limits seldom.Warning }

// watchedStreams are those that are written to all the time.
var watchedStreams = append([]string{codec.Telemetry}, fedStreams...)

// Alive says why only a restart helps, nil while there is hope.
func (e *Engine) Alive() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Writable says why nothing can be stored at present, nil if it can. It finds
// out by itself when that changes; nobody has to try.
func (e *Engine) Writable() error {
	if err := e.Alive(); err != nil {
		return err
	}
	for _, name := range watchedStreams {
		if e.writes[name].Load() {
			return fmt.Errorf("the engine stores nothing in %s", name)
		}
	}
	return nil
}

// tryTelemetry finds out when TELEMETRY takes writes again after a commit was
// given up. Nobody else would: while it is said to take none, nobody is let
// through who could store something. What it stores is a commit without samples, the
// only proof that there is, and folded like others. The other streams have their
// heartbeats.
func (e *Engine) tryTelemetry(ctx context.Context) {
	failing, subject := e.writes[codec.Telemetry], codec.TelemetrySubject(0)
	id := "" // the same for all tries, so that one of them is stored
	for range ticks.Every(ctx, e.config.Timeouts.Beat) {
		if !failing.Load() || e.committing.Load() > 0 { // a commit is tried until it finds out itself
			id = ""
			continue
		}
		if id == "" {
			id = nuid.Next()
		}
		try, cancel := context.WithTimeout(ctx, e.config.Timeouts.Try)
		_, err := e.js.Publish(try, subject, codec.Seal(subject, []byte{0}), jetstream.WithMsgID(id), jetstream.WithExpectStream(codec.Telemetry))
		cancel()
		if err == nil || full(err) { // a full stream says so itself to whoever appends
			failing.Store(false)
		}
	}
}
