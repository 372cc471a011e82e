package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/cluster/embedded"
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

	dir    *embedded.DataDir // embedded only
	server *server.Server    // embedded only
	node   *store.NodeName
	// interrupted is what was under way at a crash; embedded only.
	interrupted []*embedded.Interrupted
	nc          *nats.Conn
	js          jetstream.JetStream
	legacy      nats.JetStreamContext // only this one has ordered push consumers

	preloaded  *embedded.Preload // embedded only: what Config.Answers holds, until FollowStates takes it
	committers []*committer
	batches    chan struct{} // holds a token for each atomic batch under way
	backlog    backlog
	writes     map[string]*writeHealth // of watchedStreams
	beats      map[string]*heartbeat
	committing atomic.Int32 // commits of samples under way
	warned     warned
	storing    context.Context // ends with a write error of the embedded engine
	jam        context.CancelCauseFunc
	newest     embedded.Newest // acknowledged by this process
	witnessed  embedded.Newest // by those before, as the files say; embedded only
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
// the first start. On an error nothing is left running, and a data directory
// that could not be used was not changed.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	c = c.withDefaults()
	e := &Engine{config: c, log: c.Log, now: c.Now, failed: make(chan error, 1), batches: make(chan struct{}, openBatches), newest: embedded.NewNewest(), witnessed: embedded.NewNewest()}
	e.storing, e.jam = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			e.abandon()
		}
	}()
	if c.embedded() {
		err = e.openEmbedded(ctx)
	} else {
		err = e.openExternal()
	}
	if err != nil {
		return nil, err
	}
	if e.js, err = jetstream.New(e.nc); err != nil {
		return nil, err
	}
	if e.legacy, err = e.nc.JetStream(); err != nil {
		return nil, err
	}
	if !c.embedded() {
		// What the cluster forbids ends everything that waits for an answer.
		var deny context.CancelCauseFunc
		opening := ctx
		ctx, deny = context.WithCancelCause(ctx)
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
	}
	if e.nc.MaxPayload() < payloadBytes {
		return nil, fmt.Errorf("the NATS cluster takes messages of %d bytes at most: set its max_payload to 1MB or more", e.nc.MaxPayload())
	}
	if c.embedded() && e.dir.Ready {
		if err = e.checkWhole(ctx); err != nil {
			return nil, err
		}
	}
	if e.partitions, err = ensureStreams(ctx, e.js, c); err != nil {
		return nil, e.dir.Blame(err)
	}
	if err = e.comparePreloaded(ctx); err != nil {
		return nil, err
	}
	if err = e.finishInterrupted(ctx, e.interrupted); err != nil {
		return nil, e.dir.Blame(err)
	}
	if !c.embedded() {
		if err = e.probeRights(ctx, streamConfigs(c, made{partitions: e.partitions})); err != nil {
			return nil, err
		}
	}
	err = patiently(ctx, func(ctx context.Context) error { return store.LoadVIDKeys(ctx, e, &e.forgotten) })
	if unled(err) && !c.embedded() && ctx.Err() == nil {
		err = errUnled
	}
	if err != nil {
		return nil, e.dir.Blame(err)
	}
	if c.embedded() {
		e.dir.Partitions, e.dir.Ready, e.dir.Closed = e.partitions, true, nil
		if err = e.dir.Save(); err != nil {
			return nil, err
		}
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
	e.writes = make(map[string]*writeHealth)
	for _, name := range watchedStreams {
		e.writes[name] = new(writeHealth)
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
	e.running.Go(func() { e.watchWrites(ctx) })
	e.running.Go(func() { e.tryTelemetry(ctx) })
	e.needed.Store(true)
	if e.nc.IsClosed() {
		e.onClosed(e.nc)
	}
}

func (e *Engine) openEmbedded(ctx context.Context) (err error) {
	if e.dir, err = embedded.OpenDataDir(e.config.DataDir); err != nil {
		return err
	}
	if err = embedded.CheckWritable(e.config.DataDir); err != nil {
		return err
	}
	if e.dir.Ready {
		// Before the server starts: it cuts off what it cannot read.
		if e.config.Answers != nil {
			e.preloaded = embedded.NewPreload(e.config.Answers)
		}
		if err = embedded.CheckBlocks(ctx, e.config.DataDir, e.tornWrites(), e.preloaded, e.witnessed); err != nil {
			return err
		}
		if e.dir.Closed == nil {
			e.log.Info("the last run was cut off: every stored record was read again and is whole")
		}
	}
	if err = embedded.CompleteDescriptions(e.config.DataDir); err != nil {
		return err
	}
	if e.dir.Closed == nil { // nor does it keep what was under way
		if e.interrupted, err = embedded.KeepInterrupted(e.config.DataDir); err != nil {
			return err
		}
	}
	if e.server, err = embedded.Start(ctx, e.config.DataDir, e.config.SyncInterval, e.log, e.jam); err != nil {
		return err
	}
	e.nc, err = nats.Connect("", nats.InProcessServer(e.server), nats.Name("carstate"), e.onAsyncError())
	if err != nil {
		return fmt.Errorf("the embedded engine cannot be reached: %w", err)
	}
	return nil
}

// Cut ends the connection to the engine, so that whatever still waits for an
// answer fails now. Only Close may follow.
func (e *Engine) Cut() {
	e.needed.Store(false)
	e.nc.Close()
}

// Close ends everything in order: what writes first, the server last. Samples
// whose Append has not returned are not acknowledged.
func (e *Engine) Close() error {
	e.stop()
	e.running.Wait()
	e.Cut()
	e.node.Close()
	if e.server == nil {
		return nil
	}
	var ends map[string]embedded.StreamEnd
	if e.Writable() == nil { // otherwise what the server counts may not be on disk
		ends = e.streamEnds()
	}
	embedded.Stop(e.server)
	e.dir.Closed = ends
	return errors.Join(e.dir.Save(), e.dir.Close())
}

// abandon ends what an Open that failed has begun.
func (e *Engine) abandon() {
	if e.nc != nil {
		e.nc.Close()
	}
	if e.server != nil {
		embedded.Stop(e.server)
	}
	if e.dir != nil {
		_ = e.dir.Close() // the error that led here is reported
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
