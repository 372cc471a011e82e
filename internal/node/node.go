// Package node runs one node of the service. It reads no flags, writes to the terminal only through
// its logger, and never exits the process.
package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/vehicle"
)

type Node struct {
	config   Config
	registry *prometheus.Registry
	scraped  *prometheus.Registry // of slow collectors; the console gathers only registry, often
	cert     *keyPair             // nil if no listener speaks TLS
	ports    map[string]net.Listener

	accessLog *query.AccessLog
	tables    access.Tables
	fleet     *fleet.Table
	monitor   *console.Monitor
	changes   *ops.Changes    // nil without a console
	roads     *roadmap.Reader // empty on a node that neither folds nor has the console
	engine    store.Engine
	cluster   *cluster.Engine // nil on one machine
	records   *store.RecordStore
	health    *health
	probe     listen.Probe
	loaded    atomic.Int64
	member    string // random name of this process among those that fold

	servers []server
	stop    context.CancelFunc
	running sync.WaitGroup
	failed  chan error // errors of servers and background work
}

// All steps of Close together end within stopWithin, so that a supervisor need not kill the
// process.
const (
	stopWithin       = 4500 * time.Millisecond
	answersWithin    = 2 * time.Second         // for requests in progress
	backgroundWithin = 2500 * time.Millisecond // for background work, such as last checkpoints
	cutWithin        = 500 * time.Millisecond
	closeWithin      = time.Second
)

// When Start returns, the listeners accept requests, but the tables may still be loading. After an
// error, nothing is left open; [store.ErrConfig] means a wrong configuration.
func Start(ctx context.Context, c Config) (_ *Node, err error) {
	n := &Node{
		config: c, registry: prometheus.NewRegistry(), scraped: prometheus.NewRegistry(), fleet: fleet.New(),
		roads: new(roadmap.Reader), ports: make(map[string]net.Listener), member: rand.Text(), failed: make(chan error, 8),
	}
	n.roads.Bound(c.MaxStretches)
	n.fleet.Bound(c.vehicleBound())
	// The first steps change nothing in the data directory: a port in use is the likeliest failure.
	if n.cert, err = openFiles(&c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, l := range n.ports {
				l.Close()
			}
			n.closeAccessLog()
		}
	}()
	if err := n.openPorts(); err != nil {
		return nil, err
	}
	if n.accessLog, err = n.openAccessLog(); err != nil {
		return nil, err
	}
	if err := checkAdminKey(&c); err != nil {
		return nil, err
	}

	// A failure loses nothing: no client has received an acknowledgement yet.
	n.monitor = console.NewMonitor(n.fleet, n.registry, c.MaxAge, time.Now)
	if c.has(Admin) {
		n.changes = ops.NewChanges(n.fleet, c.MaxAge, time.Now)
		n.fleet.KeepNames(int64(memory(os.DirFS("/")) / vidsShare))
	}
	c.Store.Log, c.Store.Registry = c.Log, n.registry
	c.Store.Newer = store.NewNewer(c.Log)
	if err = n.openEngine(ctx, &c); err != nil {
		return nil, err
	}
	// Once the engine has opened the data directory, no other node uses it.
	key, err := adminKey(&c)
	if err != nil {
		return nil, errors.Join(err, n.engine.Close())
	}

	// The metrics are registered before the first server can be scraped.
	n.records = store.NewRecordStore(n.engine, c.Store, &n.tables)
	n.health = &health{
		fed: n.engine.Fed, writable: n.engine.Writable, newer: c.Store.Newer, maxFeedAge: c.MaxFeedAge,
		ingests: c.has(Ingest), started: make(chan struct{}),
	}
	if e, ok := n.engine.(*local.Engine); ok {
		n.health.progress = func() (int64, uint64, uint64) {
			folded, groups := e.Progress()
			return n.loaded.Load(), folded, groups
		}
		// A failed start must log only its reason, so what can fail is above.
		if e.Unclean {
			c.Log.Warn("the last process did not end in order: it was killed (by hand, for lack of memory, by the watchdog), " +
				"it failed, it did not end in time, or the machine lost power; its last lines and dmesg say more")
		}
	}
	n.registerMetrics()
	n.startBackground()
	n.config.fitToFiles()
	n.logVehicleBound()
	// Clients that have connected since the ports were opened have waited in the kernel's queue.
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

// Check returns an error if a node could not start with its files, and changes nothing.
// certificateEnds is zero without a certificate.
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

func openFiles(c *Config) (*keyPair, error) {
	cert, err := openKeyPair(c.TLSCert, c.TLSKey, c.Log)
	if err == nil && c.Cluster.CredsFile != "" {
		if _, err = os.ReadFile(c.Cluster.CredsFile); err != nil {
			err = fmt.Errorf("the credentials cannot be read: check --nats-creds: %w", err)
		}
	}
	return cert, fileError(err)
}

func (n *Node) Ready() error { return n.health.ready() }

// If ctx ends first, openEngine gives up after stopWithin; for the engine, that is a crash.
func (n *Node) openEngine(ctx context.Context, c *Config) error {
	opened := make(chan error, 1)
	go func() {
		var err error
		if c.Cluster.URLs == "" {
			var e *local.Engine
			c.Local.Config = c.Store
			if e, err = local.Open(ctx, c.Local); err == nil {
				n.engine = e
			}
		} else {
			c.Cluster.Config = c.Store
			c.Cluster.Known = func(id vehicle.ID) (driving, throttle signal.UnixMilli) {
				d, t := n.verdicts(id)
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

// A missing key is no error, because adminKey creates it.
func checkAdminKey(c *Config) error {
	if !c.has(Admin) {
		return nil
	}
	if err := ops.CheckKey(c.Store.DataDir); err != nil {
		return store.ConfigError(err)
	}
	return nil
}

func adminKey(c *Config) (string, error) {
	if !c.has(Admin) {
		return "", nil
	}
	if err := os.MkdirAll(c.Store.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("the data directory cannot be created: %w", err)
	}
	return ops.LoadOrCreateKey(c.Store.DataDir)
}

// Wait returns the error of a part that fails, or nil when ctx ends.
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

// Drain makes the probes fail while the node serves, so that load balancers stop sending requests.
// It returns after Config.Drain, or as Wait does.
func (n *Node) Drain(ctx context.Context) error {
	// The supervisor may give a service less time than Drain and Close take.
	extended := n.config.Drain + 2*stopWithin
	notify(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, extended.Microseconds()))
	n.health.draining.Store(true)
	ctx, cancel := context.WithTimeout(ctx, n.config.Drain)
	defer cancel()
	return n.Wait(ctx)
}

// Close abandons a step that exceeds its time limit. A crash meanwhile loses nothing that was
// acknowledged.
func (n *Node) Close() error {
	notify(daemon.SdNotifyStopping)
	deadline, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	n.health.end()
	// First the servers: telemetry that they accepted later could not be stored.
	if !within(deadline, answersWithin+cutWithin, func() { n.closeServers(deadline) }) {
		n.config.Log.Warn("a listener did not close in time")
	}
	// The log records the last answer, too. Its disk may not respond.
	within(deadline, cutWithin, n.closeAccessLog)
	// The tasks store what they hold, so the engine must still be open.
	n.stop()
	end, _ := deadline.Deadline()
	limit := max(time.Second, min(backgroundWithin, time.Until(end)-closeWithin))
	if !within(deadline, limit, n.running.Wait) {
		// Some of the work may wait for an engine that does not respond.
		n.engine.Cut()
		if !within(deadline, cutWithin, n.running.Wait) {
			n.config.Log.Warn("background work did not end in time")
		}
	}
	closed := make(chan error, 1)
	if !within(deadline, stopWithin, func() { closed <- n.engine.Close() }) {
		// On an overloaded machine, this is no failure of the service.
		n.config.Log.Warn("the engine did not close in time: the next start recovers the data directory as after a crash")
		return nil
	}
	return <-closed
}

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

func (n *Node) Reload() {
	if n.accessLog != nil && n.config.AccessLog != "-" {
		n.accessLog.Reopen()
	}
	if n.cert != nil {
		n.cert.check(true)
	}
	n.config.Log.Info("reloaded the access log and the certificate")
}

func (n *Node) Settings() wire.NodeSettings {
	readOnly := n.health.readOnly.Load()
	level := strings.ToLower(n.config.LogLevel.Level().String())
	return wire.NodeSettings{Version: n.config.Version, ReadOnly: &readOnly, LogLevel: level}
}

func (n *Node) Change(s wire.NodeSettings) {
	if s.LogLevel != "" {
		_ = n.config.LogLevel.UnmarshalText([]byte(s.LogLevel)) // the caller has validated it
	}
	if s.ReadOnly == nil || n.health.readOnly.Swap(*s.ReadOnly) == *s.ReadOnly {
		return
	}
	if *s.ReadOnly {
		n.config.Log.Warn("an operator made this node read-only: telemetry is refused")
	} else {
		n.config.Log.Warn("an operator ended read-only: telemetry is accepted again")
	}
}
