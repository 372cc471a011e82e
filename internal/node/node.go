// Package node runs one node of the service. It assembles the parts of the node, starts them, and
// ends them in order. It reads no flags, writes to the terminal only through its logger, and never
// exits the process.
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

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/vehicle"
)

// Node is a running node. [Start] returns one; [Node.Close] ends it.
type Node struct {
	config   Config
	registry *prometheus.Registry
	scraped  *prometheus.Registry // metrics that take long to collect
	cert     *keyPair             // nil if no listener speaks TLS
	ports    ports

	accessLog *query.AccessLog // nil if there is no access log
	tables    access.Tables
	fleet     *fleet.Table
	monitor   *console.Monitor
	answers   answers   // writes fleet and monitor
	roads     *road.Map // empty on a node that neither folds nor has the console
	engine    store.Engine
	cluster   *cluster.Engine // the field engine if it is shared with other nodes, else nil
	unclean   bool            // the last process did not close the engine; false if that is not known
	records   *store.RecordStore
	health    *health
	probe     listen.Probe
	loaded    atomic.Int64 // vehicles that the owners of partitions have read
	member    string       // name of this process, random, among the processes that fold

	servers []server
	stop    context.CancelFunc // ends the work in the background
	running sync.WaitGroup
	failed  chan error // receives the error of a server or background work that failed
}

// The time limits of the steps of Close. Even if parts of the node are busy, all steps together end
// within stopWithin, so that a supervisor need not kill the process.
const (
	stopWithin       = 4500 * time.Millisecond
	answersWithin    = 2 * time.Second         // for requests in progress
	backgroundWithin = time.Second             // for work in the background to end by itself
	storeWithin      = 2500 * time.Millisecond // backgroundWithin on one machine, where a last checkpoint is stored
	cutWithin        = 500 * time.Millisecond
	closeWithin      = time.Second // minimum time for the engine of one machine to close
)

// Start starts a node. When it returns, the listeners accept requests, but the tables may still be
// loading; see [Node.Ready]. If Start fails, it closes the ports, the access log and the storage
// engine, and returns nil and an error. If the cause is the configuration, the error matches
// [store.ErrConfig].
func Start(ctx context.Context, c Config) (_ *Node, err error) {
	n := &Node{
		config: c, registry: prometheus.NewRegistry(), scraped: prometheus.NewRegistry(), fleet: fleet.New(),
		roads: new(road.Map), member: rand.Text(), failed: make(chan error, 8),
	}
	n.roads.Bound(c.MaxStretches)
	n.fleet.Bound(c.vehicleBound())
	// The following steps change nothing in the data directory. They load the certificate, open the
	// ports (a port in use is the most likely failure) and the access log, and reject an admin key
	// that cannot be used. If one of these steps fails, or the process crashes during them, the
	// data directory is unchanged.
	if n.cert, err = openFiles(&c); err != nil {
		return nil, err
	}
	if n.ports, err = openPorts(c.Listeners); err != nil {
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

	// The storage engine opens the data directory. After a crash during this step, the next start
	// opens the storage engine again. No client has received an acknowledgement yet.
	n.monitor = console.NewMonitor(n.fleet, n.registry, c.MaxAge, nil)
	n.answers = answers{table: n.fleet}
	if c.has(Admin) {
		n.answers.monitor, n.answers.changes = n.monitor, ops.NewChanges(n.fleet, c.MaxAge, nil)
		n.fleet.KeepNames(int64(memory(os.DirFS("/")) / vidsShare))
	}
	c.Store.Log, c.Store.Registry = c.Log, n.registry
	c.Store.Newer = store.NewNewer(c.Log)
	if err = n.openEngine(ctx, &c); err != nil {
		return nil, err
	}
	// A missing admin key is created after the storage engine has opened the data directory,
	// because then no other node uses the directory. After a crash before this step, the next start
	// creates the key. After a crash later, the next start loads the same key.
	key, err := adminKey(&c)
	if err != nil {
		return nil, errors.Join(err, n.engine.Close())
	}

	// The following parts use the storage engine and start nothing. The metrics are registered
	// here, before the first server can be scraped.
	n.records = store.NewRecordStore(n.engine, c.Store, &n.tables)
	n.health = newHealth(n.engine.Fed, n.engine.Writable, c.Store.Newer, c.MaxFeedAge, c.has(Ingest))
	if e, ok := n.engine.(*local.Engine); ok {
		n.health.progress = func() (int64, uint64, uint64) {
			folded, groups := e.Progress()
			return n.loaded.Load(), folded, groups
		}
	}
	n.registerMetrics()
	// Now the tables begin to load from the storage engine. The comments in startBackground say
	// what a crash loses from this step on.
	n.startBackground()
	// The next three steps write log lines. The last step that can fail is before them, because a
	// failed start must log only its reason.
	if n.unclean {
		c.Log.Warn("the last process did not end in order: it was killed (by hand, for lack of memory, by the watchdog), " +
			"it failed, it did not end in time, or the machine lost power; its last lines and dmesg say more")
	}
	n.config.fitToFiles()
	n.logVehicleBound()
	// The servers are created last, because they need all parts above. They acknowledge telemetry
	// only once the storage engine has stored it. Until the tables are loaded they answer 503.
	// Clients that have connected after the ports were opened have waited in the kernel's queue.
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

// Check returns an error if a node could not start with the certificate, its key, the credentials
// and the admin key in their files. It opens no port and changes nothing. certificateEnds is zero
// without a certificate.
func Check(c Config) (certificateEnds time.Time, err error) {
	cert, err := openFiles(&c)
	if err != nil {
		return time.Time{}, err
	}
	if cert != nil {
		certificateEnds = cert.expires()
	}
	return certificateEnds, checkAdminKey(&c)
}

// openFiles reads the certificate and its key, and checks that the file of credentials can be read.
// If the configuration names no certificate, the first result is nil.
func openFiles(c *Config) (*keyPair, error) {
	cert, err := openKeyPair(c.TLSCert, c.TLSKey, c.Log)
	if err == nil && c.Cluster.CredsFile != "" {
		if _, err = os.ReadFile(c.Cluster.CredsFile); err != nil {
			err = fmt.Errorf("the credentials cannot be read: check --nats-creds: %w", err)
		}
	}
	return cert, fileError(err)
}

// Ready returns what /readyz reports: nil, or why the node does not do all of its work yet.
func (n *Node) Ready() error { return n.health.ready() }

// openEngine opens the engine that the configuration selects. If ctx ends first, it gives up after
// stopWithin; the process then exits, which is the same as a crash for the engine.
func (n *Node) openEngine(ctx context.Context, c *Config) error {
	opened := make(chan error, 1)
	go func() {
		var err error
		if c.Cluster.URLs == "" {
			var e *local.Engine
			c.Local.Config = c.Store
			if e, err = local.Open(ctx, c.Local); err == nil {
				n.engine, n.unclean = e, e.Unclean()
			}
		} else {
			c.Cluster.Config = c.Store
			c.Cluster.Known = func(id vehicle.ID) (driving, throttle vehicle.UnixMilli) {
				d, t := n.answers.Get(id)
				return d.Time, t.Time
			}
			if n.cluster, err = cluster.Open(ctx, c.Cluster); err == nil {
				n.engine = n.cluster
			}
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-opened:
		return err
	case <-time.After(stopWithin):
		return fmt.Errorf("ended while the engine was being opened: %w", ctx.Err())
	}
}

// checkAdminKey returns a [store.ErrConfig] if the admin key cannot be used. It runs before anything
// in the data directory is changed. A missing key is no error, because adminKey creates it later.
func checkAdminKey(c *Config) error {
	if !c.has(Admin) {
		return nil
	}
	if err := ops.CheckKey(c.Store.DataDir); err != nil {
		return store.ConfigError(err)
	}
	return nil
}

// adminKey returns the key of the admin listener. It creates the key at the first start. On a node
// without the admin role it returns "".
func adminKey(c *Config) (string, error) {
	if !c.has(Admin) {
		return "", nil
	}
	if err := os.MkdirAll(c.Store.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("the data directory cannot be created: %w", err)
	}
	return ops.LoadOrCreateKey(c.Store.DataDir)
}

// Wait waits until ctx ends or a part of the node fails. It returns nil after ctx has ended, and
// otherwise the error of the part that failed.
func (n *Node) Wait(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
		return nil
	case err = <-n.failed:
	case err = <-n.engine.Failed():
	}
	if errors.Is(err, store.ErrReplaced) {
		return fmt.Errorf("%w; this node's tables are copies of the old stream, "+
			"so the node ends and its supervisor starts it again", err)
	}
	return err
}

// Drain makes the probes fail while the node keeps serving, so that load balancers stop sending
// requests before the listeners close. It returns nil after Config.Drain or when ctx ends, or the
// error of a part that fails.
func (n *Node) Drain(ctx context.Context) error {
	// The supervisor may give a service less time to end than Drain and Close take, so the node
	// asks the supervisor for more time.
	extended := n.config.Drain + 2*stopWithin
	notify(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, extended.Microseconds()))
	n.health.drain()
	ctx, cancel := context.WithTimeout(ctx, n.config.Drain)
	defer cancel()
	return n.Wait(ctx)
}

// Close ends the node. It first ends the servers, because telemetry that they accepted later could
// not be stored. Then it ends the work in the background, and finally the storage engine. A step
// that exceeds its time limit is abandoned. A crash during Close loses nothing that was
// acknowledged, unless Local.SyncInterval permits such a loss. Close returns the error of closing
// the storage engine.
func (n *Node) Close() error {
	// STOPPING tells the supervisor that the end is intended. From now on the probes fail and
	// telemetry is refused.
	notify(daemon.SdNotifyStopping)
	deadline, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	n.health.end()
	// The servers finish the requests in progress and close their connections. A crash before or
	// during this step is the same as a crash in operation.
	if !within(deadline, answersWithin+cutWithin, func() { n.closeServers(deadline) }) {
		n.config.Log.Warn("a listener did not close in time")
	}
	// The access log is closed after the last answer, because the log records this answer, too. The
	// step has a time limit because the disk of the log may not respond. A crash before this step
	// loses the lines that are still buffered.
	within(deadline, cutWithin, n.closeAccessLog)
	// The background tasks end. They first store what they hold in memory: the folded states, the
	// counts of calls, the map of roads. The storage engine must still be open for this, so it
	// closes later. After a crash before this step, the next start folds the telemetry since the
	// last checkpoint again, and the counts of the last minute are lost.
	n.stop()
	limit := backgroundWithin
	if end, _ := deadline.Deadline(); n.cluster == nil {
		limit = max(limit, min(storeWithin, time.Until(end)-closeWithin))
	}
	if !within(deadline, limit, n.running.Wait) {
		// Some of the work may wait for a storage engine that does not respond. Cut makes the calls
		// of the storage engine fail.
		n.engine.Cut()
		if !within(deadline, cutWithin, n.running.Wait) {
			n.config.Log.Warn("background work did not end in time")
		}
	}
	// The storage engine closes last, because all parts above may use it until they end. After a
	// crash during this step, the next start recovers the data directory, which takes longer than
	// to open a directory that was closed.
	closed := make(chan error, 1)
	if !within(deadline, stopWithin, func() { closed <- n.engine.Close() }) {
		// On a machine without time for it, this is no failure of the service.
		n.config.Log.Warn("the engine did not close in time: the next start recovers the data directory as after a crash")
		return nil
	}
	return <-closed
}

// closeServers shuts all servers down at the same time, within answersWithin.
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

// within reports whether f returned before the time limit and before ctx ended. If it did not, f
// keeps running.
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
