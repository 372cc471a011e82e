package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/access"
	"carstate/internal/admin"
	"carstate/internal/admin/console"
	"carstate/internal/derive"
	"carstate/internal/fleet"
	"carstate/internal/ingest"
	"carstate/internal/overload"
	"carstate/internal/query"
	"carstate/internal/road"
	"carstate/internal/stream"
	"carstate/internal/ticks"
	"carstate/internal/vehicle"
)

// service is a running node.
type service struct {
	flags    *serveFlags
	log      *slog.Logger
	registry *prometheus.Registry
	traces   traces
	cert     *keyPair // nil: no listener speaks TLS
	ports    listeners

	accessLog *query.AccessLog // nil: none is kept
	tokens    access.Tokens
	sources   access.Sources
	fleet     *fleet.Table
	roads     *road.Map // empty on a node that neither judges nor has the console
	engine    *stream.Engine
	keeper    *stream.Keeper
	health    *health
	monitor   *console.Monitor
	probe     overload.Probe
	member    string // this process among those that fold

	servers []server
	doors   []*halfOpen        // of the servers of net/http
	stop    context.CancelFunc // ends what runs in the background
	running sync.WaitGroup
	failed  chan error // what ended by itself
}

// server is one listener's server.
type server struct {
	name     string
	serve    func() error
	shutdown func(context.Context) error
}

// How long the parts of an end may take. Whatever they are busy with, a node
// ends within stopWithin, so that a supervisor need not kill it.
const (
	stopWithin       = 4500 * time.Millisecond
	answersWithin    = 2 * time.Second // what was asked or sent is answered
	backgroundWithin = time.Second     // what folds and follows ends by itself
	cutWithin        = 500 * time.Millisecond
)

// startService brings a node up. Ports are opened first, because a busy one is
// the likeliest obstacle and nothing has been touched by then.
func startService(ctx context.Context, f *serveFlags, log *slog.Logger, anyPort func(address) bool) (*service, error) {
	return startOn(ctx, f, f.streamConfig(), log, anyPort)
}

// startOn is startService on an engine that is configured already.
func startOn(ctx context.Context, f *serveFlags, c stream.Config, log *slog.Logger, anyPort func(address) bool) (_ *service, err error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	cert, err := openKeyPair(f, log)
	if err != nil {
		return nil, err
	}
	s := &service{flags: f, log: log, cert: cert, registry: prometheus.NewRegistry(), fleet: fleet.New(), roads: new(road.Map), member: rand.Text(), failed: make(chan error, 8)}
	s.roads.Bound(f.MaxStretches)
	if s.traces, err = newTraces(ctx, f, log); err != nil {
		return nil, err
	}
	if s.ports, err = listen(f.addresses(), anyPort); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.ports.close()
			s.closeAccessLog()
		}
	}()
	if s.accessLog, err = s.openAccessLog(); err != nil {
		return nil, err
	}
	if err := checkAdminKey(f); err != nil {
		return nil, err
	}
	s.monitor = console.NewMonitor(s.fleet, s.registry, f.MaxAge, nil)
	c.Log, c.Registry, c.Tracer, c.Answers = log, s.registry, s.traces.tracer(), answers{s.fleet, s.monitor}
	if s.engine, err = openEngine(ctx, c); err != nil {
		return nil, err
	}
	key, err := adminKey(f)
	if err != nil {
		return nil, errors.Join(err, s.engine.Close())
	}
	s.registerMetrics()
	s.startBackground()
	s.addServers(cert.config(), access.HashOf(key))
	s.serve()
	return s, nil
}

// serve starts the servers.
func (s *service) serve() {
	for _, srv := range s.servers {
		s.running.Go(func() {
			if err := srv.serve(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				s.failed <- fmt.Errorf("the %s listener ended: %w", srv.name, err)
			}
		})
	}
}

// answers is the fleet table as the engine fills it while it opens.
type answers struct {
	*fleet.Table
	monitor *console.Monitor
}

func (a answers) Put(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	a.Table.Put(id, fleet.Answer{Driving: d, Throttle: t})
	a.monitor.PutVerdicts(id, d, t)
}

func (a answers) Delete(id vehicle.ID) {
	a.Table.Delete(id)
	a.monitor.Put(id, vehicle.State{})
}

func (a answers) Clear() {
	a.Table.Clear()
	a.monitor.Clear()
}

// openEngine opens the engine. Where that takes long and the context ends, it
// does not wait for more than stopWithin: the process then ends as in a crash,
// for which the engine is made.
func openEngine(ctx context.Context, c stream.Config) (*stream.Engine, error) {
	type result struct {
		engine *stream.Engine
		err    error
	}
	opened := make(chan result, 1)
	go func() {
		e, err := stream.Open(ctx, c)
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
		return nil, fmt.Errorf("ended while the engine was being opened: %w", ctx.Err())
	}
}

// checkAdminKey refuses an admin key that cannot be used, before anything in
// the data directory is changed. One that is missing is made later, once the
// directory turned out to be ours.
func checkAdminKey(f *serveFlags) error {
	if !f.has("admin") {
		return nil
	}
	return admin.CheckKey(f.DataDir)
}

// adminKey returns the key of the node's admin listener, made at its first
// start. Nodes without that role have none.
func adminKey(f *serveFlags) (string, error) {
	if !f.has("admin") {
		return "", nil
	}
	if err := os.MkdirAll(f.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("the data directory cannot be made: %w", err)
	}
	return admin.LoadOrCreateKey(f.DataDir)
}

// startBackground starts what follows and folds the streams.
func (s *service) startBackground() {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.keeper = s.engine.NewKeeper(&s.tokens, &s.sources)
	s.health = newHealth(s.engine.Fed, s.engine.Writable, s.flags.MaxFeedAge, s.flags.has("ingest"))

	s.background(func() error { return s.keeper.RunTokens(ctx, s.health.recordsCaughtUp) })
	s.background(func() error { return s.keeper.RunSources(ctx, s.health.recordsCaughtUp) })
	s.background(func() error {
		if !s.flags.needsStates() {
			return s.engine.FollowCursors(ctx, s.health.caughtUp)
		}
		return s.engine.FollowStates(ctx, func(id vehicle.ID, st vehicle.State) {
			if s.flags.has("admin") {
				s.monitor.Put(id, st)
			}
			if st == (vehicle.State{}) {
				s.fleet.Delete(id) // it was forgotten
				return
			}
			s.fleet.Put(id, fleet.Answer{Driving: st.Driving(), Throttle: st.Throttle()})
		}, s.health.caughtUp)
	})
	s.background(func() error { return s.probe.Run(ctx) })
	s.background(func() error { s.tellSupervisor(ctx); return nil })
	s.background(func() error { s.expire(ctx); return nil })
	if s.flags.has("admin") {
		s.background(func() error { s.monitor.Run(ctx); return nil })
	}
	if s.cert != nil {
		s.background(func() error { s.cert.watch(ctx); return nil })
	}
	if s.flags.has("query") {
		s.background(func() error { s.keeper.KeepUsage(ctx); return nil })
	}
	loaded := make(chan struct{})
	if s.knowsRoads() {
		s.background(func() error {
			s.engine.KeepRoads(ctx, s.roads, s.flags.has("derive"), func() { close(loaded) })
			return nil
		})
	}
	if s.flags.has("derive") {
		d := s.newDeriver(ctx)
		s.background(func() error {
			s.awaitRoads(ctx, loaded)
			d.Run(ctx)
			return nil
		})
		s.background(func() error { s.engine.Trim(ctx); return nil })
		s.background(func() error { s.keeper.Erase(ctx); return nil })
	}
}

// knowsRoads reports whether the node has a map of roads: to judge, or to show it.
func (s *service) knowsRoads() bool { return s.flags.has("derive") || s.flags.has("admin") }

// roadsWithin is how long a node waits for its map of roads before it judges cars
// without it. A million stretches take about a second.
const roadsWithin = 30 * time.Second

// awaitRoads waits until the map of roads is loaded.
func (s *service) awaitRoads(ctx context.Context, loaded <-chan struct{}) {
	select {
	case <-loaded:
	case <-ctx.Done():
	case <-time.After(roadsWithin):
		s.log.Warn("the profiles of roads are not loaded yet: cars are judged without those that are missing")
	}
}

func (s *service) background(f func() error) {
	s.running.Go(func() {
		if err := f(); err != nil {
			s.failed <- err
		}
	})
}

// A node keeps the states of this many vehicles at hand, spread over its
// partitions, about 1.6 KB each; others are read when they report.
const (
	cachedStates    = 200_000
	minCachedStates = 1_000
)

func (s *service) newDeriver(ctx context.Context) *derive.Deriver {
	c := derive.Config{
		Partitions: s.engine.Partitions(),
		Observe:    s.roads.Observe,
		MaxStates:  max(stream.BatchStates, stream.MaxStates/s.engine.Partitions()),
		MaxLoad:    stream.MaxLoad,
		MaxCached:  max(minCachedStates, cachedStates/s.engine.Partitions()),
		Log:        s.log,
		Members:    s.joinMembers(ctx),
	}
	// No other process ever has this name, so that what it writes is nobody else's.
	owner, free := s.member, func(string) bool { return true }
	if c.Members != nil {
		free = c.Members.Free
		c.Release = func(ctx context.Context, p int) error { return s.engine.Release(ctx, p, owner) }
	}
	c.Take = func(ctx context.Context, p int) (derive.Partition, error) {
		part, err := s.engine.TakeFrom(ctx, p, owner, free)
		if err != nil {
			return nil, err // not a nil pointer that is no nil interface
		}
		return part, nil
	}
	d := derive.New(c)
	s.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "carstate_samples_folded_total",
		Help: "Samples folded into states by this node.",
	}, func() float64 { return float64(d.Samples()) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "carstate_states_read_total",
		Help: "States read from the engine because the vehicle was not at hand.",
	}, func() float64 { return float64(d.StatesRead()) }))
	return d
}

// joinMembers makes this node one of those that share the partitions; nil where
// it has them all.
func (s *service) joinMembers(ctx context.Context) *derive.Members {
	leases := s.engine.Leases()
	if leases == nil {
		return nil
	}
	host, _ := os.Hostname()
	s.log.Info("this node shares the folding", "member", s.member, "host", host, "pid", os.Getpid())
	m := derive.NewMembers(s.member, s.engine.Partitions(), leases, s.log)
	s.background(func() error { return m.Run(ctx) })
	s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_fold_members",
		Help: "Nodes that share the folding, as far as this one knows.",
	}, func() float64 { n, _ := m.Count(); return float64(n) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_fold_partitions",
		Help: "Partitions that are this node's to fold.",
	}, func() float64 { _, n := m.Count(); return float64(n) }))
	return m
}

// forgetAfter is how long the fleet table remembers a vehicle that has gone
// silent, so that it can say "stale" rather than "unknown".
const forgetAfter = 30 * 24 * time.Hour

// silentBefore is the time before which who was heard last has been silent for too
// long, in a process that has run so long since it began. A clock that has jumped
// ahead since does not count: who is dropped is unknown until they report again.
func silentBefore(began time.Time, ran time.Duration, now time.Time, forgetAfter time.Duration) time.Time {
	if steady := began.Add(ran); steady.Before(now) {
		now = steady
	}
	return now.Add(-forgetAfter)
}

// expire drops vehicles that have been silent for long.
func (s *service) expire(ctx context.Context) {
	began := time.Now()
	for range ticks.Every(ctx, time.Hour) {
		before := silentBefore(began.Round(0), time.Since(began), time.Now().Round(0), max(forgetAfter, s.flags.MaxAge))
		if n := s.fleet.Expire(before); n > 0 {
			s.log.Info("silent vehicles were dropped from memory", "vehicles", n)
		}
	}
}

// addServers makes the servers of the ports that are open.
func (s *service) addServers(t *tls.Config, adminKey access.Hash) {
	tlsFor := func(flag string) *tls.Config {
		for _, a := range s.flags.addresses() {
			if a.flag == flag && a.tls {
				return t
			}
		}
		return nil
	}
	if port := s.ports["--query-addr"]; port != nil {
		l := s.shedding("query", port, overload.Queries)
		trusted, _ := s.flags.trustedProxies() // the flags are valid
		q := query.New(query.Config{
			Tokens: &s.tokens, Fleet: s.fleet, MaxAge: s.flags.MaxAge, Ready: s.health.canAnswer,
			Overloaded: l.Overloaded, Excess: l.Excess, NoDocs: s.flags.NoDocs, TrustedProxies: trusted, AccessLog: s.accessLog,
			TLS: tlsFor("--query-addr"), Log: s.log, Registry: s.registry,
		})
		s.servers = append(s.servers, server{"query", func() error { return q.Serve(l) }, q.Shutdown})
	}
	c := ingest.Config{Store: s.engine, Sources: &s.sources, Ready: s.health.canStore, Forgotten: s.engine.Forgotten().Has, Log: s.log, Registry: s.registry, Tracer: s.traces.tracer(), TLS: tlsFor("--ingest-addr")}
	if port := s.ports["--ingest-addr"]; port != nil {
		p := s.shedding("ingest", port, overload.Telemetry)
		c.Overloaded, c.Excess = p.Overloaded, p.Excess
		l := s.door(p, tlsFor("--ingest-addr") != nil)
		h := ingest.NewHTTP(c)
		s.servers = append(s.servers, server{"ingest", func() error { return h.Serve(l) }, h.Shutdown})
	}
	if plain, secure := s.ports["--mqtt-addr"], s.ports["--mqtt-tls-addr"]; plain != nil || secure != nil {
		c.TLS = t
		m := ingest.NewMQTT(c)
		if plain != nil {
			s.servers = append(s.servers, server{"MQTT", func() error { return m.Serve(plain) }, m.Shutdown})
		}
		if secure != nil {
			s.servers = append(s.servers, server{"MQTT TLS", func() error { return m.ServeTLS(secure) }, m.Shutdown})
		}
	}
	if port := s.ports["--admin-addr"]; port != nil {
		l := s.door(port, tlsFor("--admin-addr") != nil)
		a := admin.New(s.adminConfig(adminKey, tlsFor("--admin-addr")))
		s.servers = append(s.servers, server{"admin", func() error { return a.Serve(l) }, a.Shutdown})
	}
}

// adminConfig is of probes alone where the node has not the operator's role.
func (s *service) adminConfig(key access.Hash, t *tls.Config) admin.Config {
	c := admin.Config{
		ProbesOnly: true,
		Alive:      s.engine.Alive, Ready: s.health.ready, ReadyFor: make(map[string]func() error), FeedAge: s.health.feedAge,
		Gatherer: s.registry, Registry: s.registry, Log: s.log, TLS: t, Version: version,
	}
	for job, ready := range map[string]func() error{"query": s.health.answers, "ingest": s.health.canStore} {
		if s.flags.has(job) {
			c.ReadyFor[job] = ready
		}
	}
	if !s.flags.has("admin") {
		return c
	}
	c.ProbesOnly = false
	c.Tokens, c.Sources, c.Operators, c.Keeper, c.AdminKey, c.KeyDir = &s.tokens, &s.sources, s.keeper.Operators(), s.keeper, key, s.flags.DataDir
	c.State, c.MaxAge, c.Console = s.engine.State, s.flags.MaxAge, s.console
	c.Roads, c.Store, c.Started = s.roads, s.keeper, s.health.started
	c.Forget, c.Allow, c.Forgotten = s.keeper.Forget, s.keeper.Allow, s.engine.Forgotten().Has
	c.VehicleName = func(id vehicle.ID) string { return s.engine.Forgotten().Hash(id).Short() }
	return c
}

// shedding wraps a listener that may be overloaded.
func (s *service) shedding(name string, port net.Listener, b overload.Bounds) *overload.Listener {
	l := overload.NewListener(port, &s.probe, b)
	s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_overloaded", Help: "1 while a listener takes no more connections than it can serve, else 0.",
		ConstLabels: prometheus.Labels{"listener": name},
	}, func() float64 {
		if l.Limited() {
			return 1
		}
		return 0
	}))
	return l
}

// door wraps the listener of a server of net/http.
func (s *service) door(l net.Listener, secure bool) net.Listener {
	d := newHalfOpen(l, secure)
	s.doors = append(s.doors, d)
	return d
}

// wait returns when the node is to end: nil after ctx did, else what failed.
func (s *service) wait(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
		return nil
	case err = <-s.failed:
	case err = <-s.engine.Failed():
	}
	if errors.Is(err, stream.ErrReplaced) {
		return fmt.Errorf("%w; the tables of this node are of the stream before, so it ends, and its supervisor starts it again", err)
	}
	return err
}

// close ends the node: first what takes in and answers, so that nothing is
// acknowledged that cannot be stored, then what folds, then the engine. What
// does not end in time is cut off.
func (s *service) close() error {
	notify(daemon.SdNotifyStopping)
	deadline, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	s.health.drain()
	if !within(deadline, answersWithin+cutWithin, func() { s.closeServers(deadline) }) {
		s.log.Warn("a listener does not end")
	}
	within(deadline, cutWithin, s.closeAccessLog) // its disk may not answer
	s.stop()
	if !within(deadline, backgroundWithin, s.running.Wait) {
		// Something waits for an engine that does not answer.
		s.engine.Cut()
		if !within(deadline, cutWithin, s.running.Wait) {
			s.log.Warn("work in the background does not end")
		}
	}
	within(deadline, cutWithin, func() {
		if err := s.traces.close(deadline); err != nil {
			s.log.Warn("the last traces cannot be sent", "error", access.OneLine(err))
		}
	})
	var err error
	if !within(deadline, stopWithin, func() { err = s.engine.Close() }) {
		return errors.New("the engine did not close in time: the next start treats the data directory as after a crash")
	}
	return err
}

// closeServers ends all servers.
func (s *service) closeServers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	for _, d := range s.doors {
		d.closeWaiting()
	}
	var closing sync.WaitGroup
	for _, srv := range s.servers {
		closing.Go(func() {
			if err := srv.shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
				s.log.Warn("connections were cut off", "listener", srv.name, "error", err)
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
