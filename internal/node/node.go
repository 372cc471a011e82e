// Package node is one node of the service: it puts the parts together, starts them and
// ends them in order. It reads no flags and writes nothing to the terminal but through
// its logger; it never ends the process.
package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/access"
	"carstate/internal/admin/console"
	"carstate/internal/fleet"
	"carstate/internal/ops"
	"carstate/internal/overload"
	"carstate/internal/query"
	"carstate/internal/road"
	"carstate/internal/store"
	"carstate/internal/store/cluster"
	"carstate/internal/store/local"
)

// Node is a running node. Make one with [Start]; end it with [Node.Close].
type Node struct {
	config   Config
	registry *prometheus.Registry
	traces   traces
	cert     *keyPair // nil: no listener speaks TLS
	ports    ports

	accessLog *query.AccessLog // nil: none is kept
	tables    access.Tables
	fleet     *fleet.Table
	monitor   *console.Monitor
	answers   answers   // the writer of fleet and monitor
	roads     *road.Map // empty on a node that neither judges nor has the console
	engine    store.Engine
	cluster   *cluster.Engine // the same, if other nodes share it; else nil
	records   *store.RecordStore
	health    *health
	probe     overload.Probe
	member    string // this process among those that derive

	maxVehicles atomic.Int64 // that may become known; 0: no bound

	servers []server
	stop    context.CancelFunc // ends what runs in the background
	running sync.WaitGroup
	failed  chan error // what ended by itself
}

// Time limits of the parts of an end. Whatever they are busy with, a node
// ends within stopWithin, so that a supervisor need not kill it.
const (
	stopWithin       = 4500 * time.Millisecond
	answersWithin    = 2 * time.Second // requests in progress are answered
	backgroundWithin = time.Second     // the work in the background ends by itself
	cutWithin        = 500 * time.Millisecond
)

// Start brings a node up. When it returns, the listeners serve; the tables may still be
// filling, see [Node.Ready].
func Start(ctx context.Context, c Config) (_ *Node, err error) {
	n := &Node{
		config: c, registry: prometheus.NewRegistry(), fleet: fleet.New(), roads: new(road.Map),
		member: rand.Text(), failed: make(chan error, 8),
	}
	n.roads.Bound(c.MaxStretches)
	n.boundVehicles(c.vehicleBound())
	// Whatever may fail without a trace comes before the data directory is touched: the
	// certificate, the ports (a busy one is the likeliest obstacle), the access log, an
	// admin key that cannot be used.
	if n.cert, err = openKeyPair(c.TLSCert, c.TLSKey, c.Log); err != nil {
		return nil, err
	}
	if n.traces, err = newTraces(ctx, &c); err != nil {
		return nil, err
	}
	if n.ports, err = listen(c.Listeners); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.ports.close()
			n.closeAccessLog()
		}
	}()
	if n.accessLog, err = n.openAccessLog(); err != nil {
		return nil, err
	}
	if err := checkAdminKey(&c); err != nil {
		return nil, err
	}

	// The engine of one machine fills the fleet table while it opens; later changes follow.
	n.monitor = console.NewMonitor(n.fleet, n.registry, c.MaxAge, nil)
	n.answers = answers{table: n.fleet}
	if c.has(Admin) {
		n.answers.monitor = n.monitor
		n.fleet.KeepNames(int64(memory(os.DirFS("/")) / vidsShare))
	}
	c.Store.Log, c.Store.Registry, c.Store.Tracer = c.Log, n.registry, n.traces.tracer()
	c.Store.Newer = store.NewNewer(c.Log)
	if err = n.openEngine(ctx, &c); err != nil {
		return nil, err
	}
	// A missing admin key is made only now that the directory turned out to be ours.
	key, err := adminKey(&c)
	if err != nil {
		return nil, errors.Join(err, n.engine.Close())
	}

	// The servers come last: until the tables are filled, they answer 503.
	n.records = store.NewRecordStore(n.engine, c.Store, &n.tables)
	n.health = newHealth(n.engine.Fed, n.engine.Writable, c.Store.Newer, c.MaxFeedAge, c.has(Ingest))
	n.registerMetrics()
	n.startBackground()
	n.config.fitToFiles() // not before: if a start fails, its reason is the only line
	n.sayVehicleBound()
	n.addServers(n.cert.config(), access.HashOf(key))
	for _, srv := range n.servers {
		n.background(func() error {
			if err := srv.serve(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("the %s listener ended: %w", srv.name, err)
			}
			return nil
		})
	}
	return n, nil
}

// Check refuses files with which a node could not start. It opens no port and changes
// nothing. It returns when the certificate ends; zero: there is none.
func Check(c Config) (certificateEnds time.Time, err error) {
	cert, err := openKeyPair(c.TLSCert, c.TLSKey, c.Log)
	if err != nil {
		return time.Time{}, err
	}
	if cert != nil {
		certificateEnds = cert.expires()
	}
	return certificateEnds, checkAdminKey(&c)
}

// Ready says why the node does not do all of its work yet, as /readyz does; nil: it does.
func (n *Node) Ready() error { return n.health.ready() }

// openEngine opens the engine that the configuration names.
func (n *Node) openEngine(ctx context.Context, c *Config) (err error) {
	if c.Cluster.URLs == "" {
		c.Local.Config, c.Local.Answers = c.Store, n.answers
		e, err := openWithin(ctx, func() (*local.Engine, error) { return local.Open(ctx, c.Local) })
		if err == nil {
			n.engine = e
		}
		return err
	}
	c.Cluster.Config = c.Store
	if n.cluster, err = openWithin(ctx, func() (*cluster.Engine, error) { return cluster.Open(ctx, c.Cluster) }); err == nil {
		n.engine = n.cluster
	}
	return err
}

// openWithin waits for an engine to open. If that takes long and the context ends, it waits
// for no more than stopWithin: the process then ends as in a crash, for which the engines
// are made.
func openWithin[Engine any](ctx context.Context, open func() (Engine, error)) (Engine, error) {
	type result struct {
		engine Engine
		err    error
	}
	opened := make(chan result, 1)
	go func() {
		e, err := open()
		opened <- result{e, err}
	}()
	select {
	case r := <-opened:
		return r.engine, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-opened:
		return r.engine, r.err
	case <-time.After(stopWithin):
		var none Engine
		return none, fmt.Errorf("ended while the engine was being opened: %w", ctx.Err())
	}
}

// checkAdminKey refuses an admin key that cannot be used, before anything in
// the data directory is changed. One that is missing is made later, once the
// directory turned out to be ours.
func checkAdminKey(c *Config) error {
	if !c.has(Admin) {
		return nil
	}
	return ops.CheckKey(c.Store.DataDir)
}

// adminKey returns the key of the node's admin listener, made at its first
// start. Nodes without that role have none.
func adminKey(c *Config) (string, error) {
	if !c.has(Admin) {
		return "", nil
	}
	if err := os.MkdirAll(c.Store.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("the data directory cannot be made: %w", err)
	}
	return ops.LoadOrCreateKey(c.Store.DataDir)
}

// Wait returns when the node is to end: nil after ctx did, else what failed.
func (n *Node) Wait(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
		return nil
	case err = <-n.failed:
	case err = <-n.engine.Failed():
	}
	if errors.Is(err, store.ErrReplaced) {
		return fmt.Errorf("%w; the tables of this node are of the stream before, so it ends, and its supervisor starts it again", err)
	}
	return err
}

// Drain has the probes say that the node is ending, while it goes on serving, so that load
// balancers stop sending before the listeners close. It returns after Config.Drain, or when ctx
// ends or the node fails.
func (n *Node) Drain(ctx context.Context) error {
	// Its supervisor may give a service less time to end than this takes.
	notify(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, (n.config.Drain + 2*stopWithin).Microseconds()))
	n.health.drain()
	ctx, cancel := context.WithTimeout(ctx, n.config.Drain)
	defer cancel()
	return n.Wait(ctx)
}

// Close ends the node: first what takes in and answers, so that nothing is
// acknowledged that cannot be stored, then the work in the background, then the engine. What
// does not end in time is cut off.
func (n *Node) Close() error {
	notify(daemon.SdNotifyStopping)
	deadline, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	n.health.end()
	if !within(deadline, answersWithin+cutWithin, func() { n.closeServers(deadline) }) {
		n.config.Log.Warn("a listener does not end")
	}
	within(deadline, cutWithin, n.closeAccessLog) // its disk may not answer
	n.stop()
	if !within(deadline, backgroundWithin, n.running.Wait) {
		// Something waits for an engine that does not answer.
		n.engine.Cut()
		if !within(deadline, cutWithin, n.running.Wait) {
			n.config.Log.Warn("work in the background does not end")
		}
	}
	within(deadline, cutWithin, func() {
		if err := n.traces.close(deadline); err != nil {
			n.config.Log.Warn("the last traces cannot be sent", "error", access.OneLine(err))
		}
	})
	var err error
	if !within(deadline, stopWithin, func() { err = n.engine.Close() }) {
		return errors.New("the engine did not close in time: the next start treats the data directory as after a crash")
	}
	return err
}

// closeServers ends all servers.
func (n *Node) closeServers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var closing sync.WaitGroup
	for _, srv := range n.servers {
		closing.Go(func() {
			if err := srv.shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
				n.config.Log.Warn("connections were cut off", "listener", srv.name, "error", err)
			}
		})
	}
	closing.Wait()
}

// within reports whether f ended before the limit and before the context did. If
// not, f goes on.
func within(ctx context.Context, limit time.Duration, f func()) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		f()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}
