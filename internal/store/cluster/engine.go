package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
	"example.org/carstate/internal/vehicle"
)

var (
	_ store.Engine      = (*Engine)(nil)
	_ store.RoadSharing = (*Engine)(nil)
)

// Engine is an open store. [Open] returns one, and [Engine.Close] ends it.
type Engine struct {
	*conn
	partitions int
	now        func() time.Time
	name       string // of this process, in the subject of what it shares of roads

	queues     []*engine.Queue // by partition
	backlog    backlog
	unfolded   *store.Unfolded
	scarce     atomic.Bool  // see watchLimits
	failing    atomic.Bool  // whether the last write of TELEMETRY failed
	committing atomic.Int32 // number of commits of samples in flight
	metrics    *metrics

	// forgotten is this node's table of tombstones. A store.RecordStore fills it from
	// tombstoneFeed, the feed of SOURCES. statesFeed is the feed of FollowStates or FollowCursors.
	forgotten                 access.Forgotten
	tombstoneFeed, statesFeed atomic.Pointer[feed]
	taken                     []atomic.Pointer[Partition] // by number; nil unless this node has taken it

	stop    context.CancelFunc // ends the background goroutines
	running sync.WaitGroup
}

// Open connects to the cluster that the configuration names. It creates missing streams, and
// updates streams that differ from the configuration. It returns an error if a permission is
// missing, or if NATS does not answer within setupTimeout. The end of ctx cancels Open, and has no
// effect on an open engine. If Open returns an error, no goroutine is left running. Open panics if
// [Config.URLs] is empty.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	if c.URLs == "" {
		panic("cluster: a configuration without URLs")
	}
	c = c.withDefaults()
	e := &Engine{now: c.Now, conn: &conn{
		config: c, log: c.Log, batches: make(chan struct{}, openBatches), Failure: engine.NewFailure(),
	}}
	if err = e.connect(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.nc.Close()
		}
	}()
	// If a permission is denied, every request of Open is canceled.
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
		return nil, fmt.Errorf("the NATS cluster accepts messages of at most %d bytes: "+
			"set its max_payload to 1MB or more", e.nc.MaxPayload())
	}
	if e.partitions, err = ensureStreams(ctx, e.js, c); err != nil {
		return nil, err
	}
	if err = e.probeRights(ctx, streamConfigs(c, fixedNumbers{partitions: e.partitions})); err != nil {
		return nil, err
	}
	err = patiently(ctx, func(ctx context.Context) error { return store.LoadVIDKeys(ctx, e, &e.forgotten) })
	if isNoLeader(err) && ctx.Err() == nil {
		err = errNoLeader
	}
	if err != nil {
		return nil, err
	}
	e.name = rand.Text()
	e.start()
	return e, nil
}

// start starts the goroutines that run until Close.
func (e *Engine) start() {
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	e.beats = make(map[string]*heartbeat)
	e.unfolded = store.NewUnfolded(e.partitions, nil)
	e.taken = make([]atomic.Pointer[Partition], e.partitions)
	e.backlog.next, e.backlog.seen = make([]atomic.Uint64, e.partitions), make([]firstUnfolded, e.partitions)
	for _, name := range fedStreams {
		b := newHeartbeat(e.conn, name)
		e.beats[name] = b
		e.running.Go(func() { b.run(ctx) })
	}
	e.metrics = newMetrics(e.config.Registry, e.config.Newer, e.backlog.age, e.beats)
	for p := range e.partitions {
		q := newQueue()
		e.queues = append(e.queues, q)
		e.running.Go(func() { e.runQueue(ctx, p, q) })
	}
	e.running.Go(func() { e.watchBacklog(ctx) })
	e.running.Go(func() { e.tryTelemetry(ctx) })
	e.needed.Store(true)
	if e.nc.IsClosed() {
		e.onClosed(e.nc)
	}
}

// Close stops the goroutines and then closes the connection. If an Append still waits for its
// samples to be stored, it returns an error, so the samples are not acknowledged. They may be
// stored nevertheless. Close always returns nil.
func (e *Engine) Close() error {
	e.stop()
	e.running.Wait()
	e.Cut()
	return nil
}

func (e *Engine) Partitions() int { return e.partitions }

// Writable implements [store.Engine]. While nothing can be stored, the engine itself tries to
// write. So the caller need not try; it can wait until Writable returns nil.
func (e *Engine) Writable() error {
	if err := e.Alive(); err != nil {
		return err
	}
	// TELEMETRY and the streams with heartbeats are written to all the time, so a failure is
	// noticed soon.
	const nothing = "the engine stores nothing in %s"
	if e.failing.Load() {
		return fmt.Errorf(nothing, codec.Telemetry)
	}
	for _, name := range fedStreams {
		if e.beats[name].failing.Load() {
			return fmt.Errorf(nothing, name)
		}
	}
	return nil
}

// Scarce implements [store.Engine].
func (e *Engine) Scarce() bool { return e.scarce.Load() }

// Fed implements [store.Engine] with the oldest time of the streams that this node follows
// (fedStreams).
func (e *Engine) Fed() (at time.Time, ok bool) {
	for _, name := range fedStreams {
		t, ok := e.beats[name].fed()
		if !ok {
			return time.Time{}, false
		}
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at, true
}

// Feed implements [store.Records]. If the stream is SOURCES, which contains the tombstones, it also
// makes awaitTombstone wait for this feed.
func (e *Engine) Feed(stream string, apply func(store.Record) error) store.Feed {
	f := e.newFeed(stream, ">")
	f.apply, f.newer = apply, true
	if stream == codec.Sources {
		e.tombstoneFeed.Store(f)
	}
	return f
}

// FollowStates implements [store.Engine]. It omits a state that a newer version wrote.
func (e *Engine) FollowStates(ctx context.Context, put func(vehicle.ID, *vehicle.State), caughtUp func()) error {
	return e.followStates(ctx, e.newFeed(codec.States, ">"), put, caughtUp)
}

// FollowCursors is like FollowStates, but for a node that does not need the states. It follows only
// the cursors and the heartbeats in STATES. From a cursor, a derive node learns that a vehicle was
// forgotten. From the heartbeats, any node learns how far its feed of STATES lags behind.
func (e *Engine) FollowCursors(ctx context.Context, caughtUp func()) error {
	f := e.newFeed(codec.States, "cursor.*", codec.HeartbeatSubject(codec.States))
	return e.followStates(ctx, f, func(vehicle.ID, *vehicle.State) {}, caughtUp)
}

func (e *Engine) followStates(
	ctx context.Context, f *feed, put func(vehicle.ID, *vehicle.State), caughtUp func(),
) error {
	e.statesFeed.Store(f)
	f.newer = true
	f.apply = func(r store.Record) error {
		id, ok := codec.VehicleOfState(r.Subject)
		if !ok {
			e.recall(r) // does nothing if r is not a cursor
			return nil
		}
		// An empty record is the marker of a removed state, in every version. After a crash, a
		// server that has rebuilt its index may deliver a removed state again although the marker
		// is gone. So the tombstones are checked, too.
		if len(r.Sealed) == codec.SealBytes || e.forgotten.Has(id) {
			put(id, &vehicle.State{})
			return nil
		}
		var s vehicle.State
		var err error
		newer := r.Newer
		if !newer {
			s, err = codec.DecodeState(r.Body)
			newer = e.config.Newer.Note(codec.States, err)
		}
		switch {
		case newer && !f.live:
			e.config.Newer.LacksStates()
		case newer: // the vehicle keeps the answer that this node knows
		case err != nil:
			return err
		default:
			put(id, &s)
		}
		return nil
	}
	return f.Run(ctx, caughtUp)
}

func (e *Engine) AwaitState(ctx context.Context, seq uint64) error {
	f := e.statesFeed.Load()
	if f == nil {
		return nil
	}
	return f.Wait(ctx, seq)
}
