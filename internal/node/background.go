package node

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/derive"
	"carstate/internal/store"
)

// startBackground starts everything that runs for as long as the node does, besides its
// servers. All steps begin at once; only the last two wait for others. None of them
// acknowledges anything to a client: the stored streams are the truth and the tables are
// copies, so that a crash between any two steps costs at most what a step says.
func (n *Node) startBackground() {
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	run := func(f func(context.Context)) {
		n.background(func() error { f(ctx); return nil })
	}

	// The tables that requests are answered from. The node is ready once all three have
	// caught up; until then its servers answer 503. A crash loses the tables, and the
	// next start reads them again.
	//
	// Tokens and sources come first because nobody can be let in without them, and
	// operators can work as soon as both are there. A token revoked on another node is
	// refused here once this feed has brought that.
	n.background(func() error { return n.records.RunTokens(ctx, n.health.recordsCaughtUp) })
	n.background(func() error { return n.records.RunSources(ctx, n.health.recordsCaughtUp) })
	// Every state that is stored becomes an answer (answers.go). A node that neither
	// answers nor shows vehicles follows only the cursors and heartbeats in STATES:
	// they tell it what was forgotten, and how far it is behind.
	n.background(func() error {
		if !n.config.needsStates() {
			return n.cluster.FollowCursors(ctx, n.health.caughtUp)
		}
		return n.engine.FollowStates(ctx, n.answers.PutState, n.health.caughtUp)
	})
	// Vehicles that are silent for 30 days leave the fleet table; their states stay
	// stored. After a crash they are back until the next hour.
	run(n.expire)

	// The watches of the node itself. None of them stores anything, so a crash costs nothing.
	//
	// The queueing delay, by which overloaded listeners limit their connections.
	n.background(func() error { return n.probe.Run(ctx) })
	// The garbage collector, so that a large heap has little garbage.
	run(tuneCollector)
	// systemd: ready, alive, and what is missing. If the process hangs, these messages
	// stop and systemd starts it again.
	run(n.tellSupervisor)
	// The figures and curves of the console, collected whether somebody looks or not.
	if n.config.has(Admin) {
		run(n.monitor.Run)
	}
	// A renewed certificate is used without a restart.
	if n.cert != nil {
		run(n.cert.watch)
	}

	// The counts of each token's calls are stored once a minute and at the end. A crash
	// loses the last minute; only displays depend on it.
	if n.config.has(Query) {
		run(n.records.KeepUsage)
	}

	// The map of roads is read first, then kept up to date and stored every 5 minutes
	// and at the end. A crash loses what was learned since, a quarter hour of a
	// stretch's profile at most; cars teach it again.
	roadsLoaded := make(chan struct{})
	if n.config.knowsRoads() {
		run(func(ctx context.Context) {
			n.records.KeepRoads(ctx, n.roads, n.config.has(Derive), func() { close(roadsLoaded) })
		})
	}

	if !n.config.has(Derive) {
		return
	}
	// Telemetry becomes states. States and the cursor behind the telemetry that they
	// rest on are stored in one batch: a crash before it leaves both as they were, and
	// the same telemetry is read once more; a crash after it leaves nothing to repeat.
	// It waits for the map of roads, in whose light cars are judged, but not for long.
	//
	// The node does this and what follows until a newer version has stored what it cannot judge.
	judging, giveUp := context.WithCancel(ctx)
	judge := func(f func(context.Context)) {
		n.background(func() error { f(judging); return nil })
	}
	deriver := n.newDeriver(judging, giveUp)
	judge(func(ctx context.Context) {
		n.awaitRoads(ctx, roadsLoaded)
		deriver.Run(ctx)
	})
	// Telemetry that the cursors have passed is removed after the retention. After a
	// crash it stays a little longer.
	judge(n.engine.Trim)
	// The bytes that name forgotten vehicles are erased from the disk. The tombstone
	// notes how far that came, so that the next start goes on after a crash.
	judge(n.records.Erase)
}

// background runs f until it returns. An error ends the node.
func (n *Node) background(f func() error) {
	n.running.Go(func() {
		if err := f(); err != nil {
			n.failed <- err
		}
	})
}

// roadsWithin is how long a node waits for its map of roads before it judges cars
// without it. A million stretches take about a second.
const roadsWithin = 30 * time.Second

// awaitRoads waits until the map of roads is loaded.
func (n *Node) awaitRoads(ctx context.Context, loaded <-chan struct{}) {
	select {
	case <-loaded:
	case <-ctx.Done():
	case <-time.After(roadsWithin):
		n.config.Log.Warn("the profiles of roads are not loaded yet: cars are judged without those that are missing")
	}
}

// A node caches the states of this many vehicles, spread over its partitions, about
// 1.6 KB each; other states are read when their vehicles report.
const (
	cachedStates    = 100_000
	minCachedStates = 1_000
)

// foldedStates is how many states the partitions of one machine fold until they must be
// stored, whether a checkpoint is due or not. If more vehicles report within a second, a
// sample costs several times the processor time, because nearly each of them stores a state.
const foldedStates = 25_000

// checkpoint is how often the engine of one machine stores states. Answers and folding do not
// wait for that. A start after a crash folds what came since. The longer it is, the less a
// sample costs, because a vehicle that reports often is stored once: of a flood of 10,000
// cars with one sample each, 18 µs of processor time with 20 ms, 6.6 µs with 250 ms and
// 5.3 µs with this.
const checkpoint = time.Second

// newDeriver makes what derives states from telemetry.
func (n *Node) newDeriver(ctx context.Context, giveUp func()) *derive.Deriver {
	checkpointed, folded := time.Duration(0), store.MaxStates
	if n.cluster == nil {
		checkpointed, folded = checkpoint, foldedStates
	}
	c := derive.Config{
		Partitions: n.engine.Partitions(),
		Observe:    n.roads.Observe,
		MaxStates:  max(store.BatchStates, folded/n.engine.Partitions()),
		MaxLoad:    store.MaxLoad,
		MaxCached:  max(minCachedStates, cachedStates/n.engine.Partitions()),
		Log:        n.config.Log,
		Checkpoint: checkpointed,
		Members:    n.joinMembers(ctx),
	}
	// No other process ever has this name, so that no other process writes under it.
	owner, free := n.member, store.Anyone
	if c.Members != nil {
		free = c.Members.Free
		c.Release = func(ctx context.Context, p int) error { return n.engine.Release(ctx, p, owner) }
		var once sync.Once
		c.GiveUp = func() {
			if n.cluster.NewerFolds() {
				once.Do(func() {
					n.config.Log.Warn("this node judges no more, because it cannot read what a newer version stores: " +
						"nodes of that version do; upgrade this node")
					giveUp()
				})
			}
		}
	}
	c.Take = func(ctx context.Context, p int) (store.Partition, error) {
		return n.engine.Take(ctx, p, owner, free)
	}
	d := derive.New(c)
	n.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "carstate_samples_folded_total",
		Help: "Samples folded into states by this node.",
	}, func() float64 { return float64(d.Samples()) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "carstate_states_read_total",
		Help: "States read from the engine because the vehicle was not at hand.",
	}, func() float64 { return float64(d.StatesRead()) }))
	return d
}

// joinMembers makes this node one of those that share the partitions. It returns nil
// where the node has all of them.
func (n *Node) joinMembers(ctx context.Context) *derive.Members {
	if n.cluster == nil {
		return nil
	}
	leases := n.cluster.Leases()
	host, _ := os.Hostname()
	n.config.Log.Info("this node shares the folding", "member", n.member, "host", host, "pid", os.Getpid())
	m := derive.NewMembers(n.member, n.engine.Partitions(), leases, n.config.Log)
	n.background(func() error { return m.Run(ctx) })
	n.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_fold_members",
		Help: "Nodes that share the folding, as far as this one knows.",
	}, func() float64 { n, _ := m.Count(); return float64(n) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_fold_partitions",
		Help: "Partitions that are this node's to fold.",
	}, func() float64 { _, n := m.Count(); return float64(n) }))
	return m
}
