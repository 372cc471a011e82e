package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster/natsconn"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
)

var (
	_ store.Engine      = (*Engine)(nil)
	_ store.RoadSharing = (*Engine)(nil)
)

type Engine struct {
	config Config
	nc     *nats.Conn
	js     jetstream.JetStream
	legacy nats.JetStreamContext // only this API has ordered push consumers

	fixedNumbers
	configs []jetstream.StreamConfig
	name    string // of this process, in the subjects of its messages
	// by stream, in the order of configs
	failing    []atomic.Bool // the last write failed
	committing []atomic.Int32
	needed     []atomic.Uint64 // telemetry before this sequence may be removed; 0: unknown

	node     uint64                   // random, in heartbeats
	began    time.Time                // monotonic origin of the times in heartbeats, which no other node reads
	returned map[string]*atomic.Int64 // by stream: time in the latest heartbeat that was delivered, in ns; 0: none

	queues     []*engine.Queue
	measuring  sync.Mutex // held during a measurement; guards seen and folding of each view
	backlogged atomic.Bool
	unfolded   *store.Unfolded
	scarce     atomic.Bool
	room       atomic.Int64 // bytes that checkpoints may add to STATES until watchLimits sets room again
	metrics    *engine.Metrics
	records    *prometheus.GaugeVec
	missing    *prometheus.GaugeVec

	// A store.RecordStore fills forgotten from tombstoneFeed, the feed of SOURCES.
	forgotten     access.Forgotten
	tombstoneFeed atomic.Pointer[feed]
	views         []view // by partition
	cursorsRead   atomic.Bool
	lacking       atomic.Int32 // partitions whose answers are incomplete

	batches chan struct{}
	// All partitions share one limit for each kind of warning.
	warned struct{ fold, commit, streams lograte.Warning }

	// when a node of a newer version last renewed its lease; nil: never
	newerLease atomic.Pointer[time.Time]

	stop    context.CancelFunc
	running sync.WaitGroup
	*engine.Failure
}

// onClosed is called when the client library has given up: every later request would fail.
func (e *Engine) onClosed(nc *nats.Conn) {
	err := cmp.Or(nc.LastError(), nats.ErrConnectionClosed)
	e.fail(fmt.Errorf("the connection to the NATS cluster was closed for good: %w", err))
}

func (e *Engine) Cut() {
	e.nc.SetClosedHandler(nil)
	e.nc.Close()
}

func (e *Engine) fail(err error) { e.Fail(e.config.Log, "the engine failed", err) }

// isFinal reports whether reading again would result in the same err. The engine then fails, except
// for a record of a newer version.
func (e *Engine) isFinal(err error) bool {
	switch {
	case codec.IsNewer(err):
		return true
	case errors.Is(err, codec.ErrDamaged), errors.Is(err, codec.ErrNewer), errors.Is(err, store.ErrReplaced):
		e.fail(err)
		return true
	}
	return false
}

// The end of ctx cancels Open, and has no effect on an open engine.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	c = c.withDefaults()
	e := &Engine{config: c, batches: make(chan struct{}, openBatches), Failure: engine.NewFailure()}
	ctx, deny := context.WithCancelCause(ctx)
	defer deny(nil)
	var opened atomic.Bool
	defer opened.Store(true)
	connection := natsconn.Config{URLs: c.URLs, CredsFile: c.CredsFile, Log: c.Log, Denied: func(d natsconn.Denial) bool {
		deny(d)
		return !opened.Load()
	}}
	if e.nc, err = natsconn.Connect(connection); err != nil {
		return nil, err
	}
	defer func() {
		if d, ok := errors.AsType[natsconn.Denial](context.Cause(ctx)); ok && err != nil {
			err = d
		}
		if err != nil {
			e.nc.Close()
		}
	}()
	if e.js, err = jetstream.New(e.nc); err == nil {
		e.legacy, err = e.nc.JetStream()
	}
	if err == nil {
		err = natsconn.Check(ctx, connection, e.nc, e.js)
	}
	if err != nil {
		return nil, err
	}
	if e.nc.MaxPayload() < payloadBytes {
		return nil, fmt.Errorf("the NATS cluster accepts messages of at most %d bytes: "+
			"set its max_payload to 1MB or more", e.nc.MaxPayload())
	}
	if e.fixedNumbers, err = ensureStreams(ctx, e.js, c); err != nil {
		return nil, err
	}
	e.configs = streamConfigs(c, e.fixedNumbers)
	if err = e.probeRights(ctx); err != nil {
		return nil, err
	}
	err = natsconn.Patiently(ctx, func(ctx context.Context) error { return store.LoadVIDKeys(ctx, e, &e.forgotten) })
	if err != nil {
		return nil, err
	}
	e.name = rand.Text()
	e.start()
	return e, nil
}

// usualLatency is the time from storing samples until this node learns that they are folded.
const usualLatency = 100 * time.Millisecond

func (e *Engine) start() {
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	e.failing = make([]atomic.Bool, len(e.configs))
	e.committing, e.needed = make([]atomic.Int32, e.streams), make([]atomic.Uint64, e.streams)
	e.node, e.began, e.returned = mathrand.Uint64(), time.Now(), make(map[string]*atomic.Int64)
	e.room.Store(math.MaxInt64)
	e.unfolded = store.NewUnfolded(e.partitions, usualLatency, time.Now)
	e.views = make([]view, e.partitions)
	for i := range e.configs {
		if name := e.configs[i].Name; slices.Contains(fedStreams, name) {
			e.returned[name] = new(atomic.Int64)
			e.running.Go(func() { e.sendHeartbeats(ctx, i) })
		}
	}
	e.registerMetrics()
	for p := range e.partitions {
		q := engine.NewQueue(maxWaitingBytes, engine.ChunkSamples, engine.ChunkBytes)
		e.queues = append(e.queues, q)
		e.running.Go(func() { e.runQueue(ctx, p, q) })
	}
	e.running.Go(func() { e.watchBacklog(ctx) })
	for i := range e.streams {
		e.running.Go(func() { e.tryTelemetry(ctx, i) })
	}
	e.running.Go(func() { e.sendAnswers(ctx) })
	e.nc.SetClosedHandler(e.onClosed)
	if e.nc.IsClosed() {
		e.onClosed(e.nc)
	}
}

// Close makes a waiting Append return an error, although its samples may be stored.
func (e *Engine) Close() error {
	e.stop()
	e.running.Wait()
	e.Cut()
	return nil
}

func (e *Engine) Partitions() int { return e.partitions }

// After a failed write, the engine itself tries again, so the caller need not write to find out
// whether writes work.
func (e *Engine) Writable() error {
	if err := e.Alive(); err != nil {
		return err
	}
	// Only telemetry and fedStreams set failing: heartbeats are written all the time.
	for i := range e.failing {
		if e.failing[i].Load() {
			return fmt.Errorf("the engine stores nothing in %s", e.configs[i].Name)
		}
	}
	return nil
}

func (e *Engine) Scarce() bool { return e.scarce.Load() }

// Fed returns the oldest time of fedStreams; for answers, also of the partitions whose answers this
// node lacks.
func (e *Engine) Fed() (records, answers time.Time, ok bool) {
	for _, name := range fedStreams {
		t, ok := e.fed(name)
		if !ok {
			return time.Time{}, time.Time{}, false
		}
		if records.IsZero() || t.Before(records) {
			records = t
		}
	}
	answers = records
	if e.lacking.Load() == 0 { // nearly always true; each query calls Fed
		return records, answers, true
	}
	for p := range e.views {
		if since := e.views[p].lackSince.Load(); since != nil && since.Before(answers) {
			answers = *since
		}
	}
	return records, answers, true
}

func (e *Engine) Feed(stream string, apply func(store.Record) error) store.Feed {
	f := &feed{e: e, stream: stream, filters: []string{">"}, apply: apply}
	if stream == codec.Sources {
		e.tombstoneFeed.Store(f)
	}
	return f
}

func (e *Engine) registerMetrics() {
	r := e.config.Registry
	r.MustRegister(e.config.Newer, feedAges{e})
	e.metrics = engine.NewMetrics(r, e.partitions, e.showsBacklog)
	e.records = engine.OfStream(r, "carstate_stream_records", "Records that a stream of the engine keeps.")
	e.missing = engine.OfStream(r, "carstate_stream_copies_missing",
		"Copies of a stream that are out of reach or lag behind. Every node reports the same.")
}

// The copy of a stream has no age until its feed has delivered a heartbeat of this node.
type feedAges struct{ e *Engine }

var feedAge = prometheus.NewDesc(store.MetricFeedAge,
	"How old this node's copy of a stream may be. Missing before the copy has caught up.", []string{"stream"}, nil)

func (feedAges) Describe(ch chan<- *prometheus.Desc) { ch <- feedAge }

func (f feedAges) Collect(ch chan<- prometheus.Metric) {
	for _, name := range fedStreams {
		if at, ok := f.e.fed(name); ok {
			ch <- prometheus.MustNewConstMetric(feedAge, prometheus.GaugeValue, time.Since(at).Seconds(), name)
		}
	}
}
