package node

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/derive"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
)

// The comments below say what a crash loses. It loses nothing else: no task acknowledges anything,
// and the tables are copies of what is stored.
func (n *Node) startBackground() {
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	run := func(f func(context.Context)) { n.background(func() error { f(ctx); return nil }) }

	// Until all three feeds have caught up, the servers answer 503. Operators can work after the
	// first two.
	n.background(func() error { return n.records.Tokens.Run(ctx, n.health.recordsCaughtUp) })
	n.background(func() error { return n.records.Sources.Run(ctx, n.health.recordsCaughtUp) })
	// A node without states learns from the heartbeats alone how old its copies of records are.
	n.background(func() error {
		if !n.config.needsStates() {
			return n.cluster.FollowCursors(ctx, 0, n.health.caughtUp)
		}
		return n.engine.FollowAnswers(ctx, n.putAnswer, n.health.caughtUp)
	})
	// Silent vehicles leave the fleet table. After a crash, they are in it again until the first
	// expiry, an hour after the start.
	run(n.expire)

	n.background(func() error { return n.probe.Run(ctx) })
	run(n.notifySupervisor)
	// The monitor always runs, so that the curves have no gap when an operator opens the page.
	if n.config.has(Admin) {
		run(n.monitor.Run)
		run(n.changes.Run)
	}
	if n.cert != nil {
		run(n.cert.watch)
	}

	// A crash loses the counts of the last minute, which are only displayed.
	if n.config.has(Query) {
		run(n.records.KeepUsage)
	}

	// A crash loses at most a quarter of an hour of each stretch's profile.
	roadsLoaded := make(chan struct{})
	if n.config.knowsRoads() {
		run(func(ctx context.Context) {
			n.records.KeepRoads(ctx, &n.roads.Map, n.config.has(Derive), func() { close(roadsLoaded) })
		})
	}

	if !n.config.has(Derive) {
		return
	}
	// After a crash, the next start folds the telemetry since the last checkpoint again, before it
	// answers. The driving rules use the map of roads.
	//
	// Folding and the two tasks below stop once a newer version has stored something that this one
	// cannot fold.
	folding, giveUp := context.WithCancel(ctx)
	whileFolding := func(f func(context.Context)) { n.background(func() error { f(folding); return nil }) }
	deriver := n.newDeriver(folding, giveUp)
	whileFolding(func(ctx context.Context) {
		n.awaitRoads(ctx, roadsLoaded)
		deriver.Run(ctx)
	})
	// After a crash, old telemetry stays a little longer.
	whileFolding(n.engine.Trim)
	// The tombstone of a vehicle records the completed steps, so the next start continues.
	whileFolding(n.records.Erase)
}

// The node ends if f returns an error.
func (n *Node) background(f func() error) {
	n.running.Go(func() {
		if err := f(); err != nil {
			n.failed <- err
		}
	})
}

const roadsWithin = 30 * time.Second // Loading a million stretches of road takes about a second.

func (n *Node) awaitRoads(ctx context.Context, loaded <-chan struct{}) {
	select {
	case <-loaded:
	case <-ctx.Done():
	case <-time.After(roadsWithin):
		n.config.Log.Warn("the profiles of roads are not loaded yet; folding begins without the missing ones")
	}
}

// The deriver calls giveUp if this node cannot read the records of a newer version, whose nodes
// then fold.
func (n *Node) newDeriver(ctx context.Context, giveUp func()) *derive.Deriver {
	c := derive.Config{
		Partitions: n.engine.Partitions(),
		Fold:       n.roads.Fold,
		Records:    n.engine,
		Covers:     n.records.Covers,
		Gone:       n.records.Gone,
		Checkpoint: n.config.Checkpoint,
		SilentDays: int((n.silentAfter() + day - 1) / day),
		Log:        n.config.Log,
		Loaded: func(vehicles int) {
			if n.cluster == nil { // partitions are about equally large
				n.fleet.Grow(vehicles * n.engine.Partitions())
			}
			n.loaded.Add(int64(vehicles))
		},
	}
	free := store.Anyone
	if n.cluster != nil {
		c.Checkpoint = cmp.Or(c.Checkpoint, 30*time.Second) // rarer than on one machine: NATS writes each byte six times
		c.Members = n.joinMembers(ctx)
		free = c.Members.Free
		c.Release = func(ctx context.Context, p int) error { return n.engine.Release(ctx, p, n.member) }
		var once sync.Once
		c.GiveUp = func() {
			if n.cluster.NewerFolds() {
				once.Do(func() {
					n.config.Log.Warn("this node has stopped folding, because it cannot read the records of a newer version; " +
						"nodes of that version fold instead: upgrade this node")
					giveUp()
				})
			}
		}
	}
	c.Take = func(ctx context.Context, p int, states store.Owner) (store.Partition, error) {
		return n.engine.Take(ctx, p, n.member, states, free)
	}
	d := derive.New(c)
	n.counter("carstate_samples_folded_total", "Samples folded into states by this node.", nil, d.Samples.Load)
	return d
}

func (n *Node) joinMembers(ctx context.Context) *derive.Members {
	host, _ := os.Hostname()
	n.config.Log.Info("joined the nodes that share the partitions", "member", n.member, "host", host, "pid", os.Getpid())
	m := derive.NewMembers(n.member, n.engine.Partitions(), n.cluster.Leases(), n.config.Log)
	n.background(func() error { return m.Run(ctx) })
	n.gauge("carstate_fold_members", "Nodes that share the partitions, as far as this node knows.",
		func() float64 { members, _ := m.Count(); return float64(members) })
	n.gauge("carstate_fold_partitions", "Partitions that this node is to fold.",
		func() float64 { _, own := m.Count(); return float64(own) })
	return m
}

func (n *Node) notifySupervisor(ctx context.Context) {
	if present, err := daemon.SdNotify(false, "STATUS=starting"); !present || err != nil {
		return
	}
	// Zero means that systemd's watchdog is off.
	silence, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.config.Log.Warn("the supervisor's watchdog cannot be notified", "error", err)
	}
	var last time.Time
	lastStatus := ""
	for range periodic.NowAndEvery(ctx, healthEvery) {
		status := "ready"
		if err := n.health.ready(); err != nil {
			status = "not ready: " + access.OneLine(err)
		}
		message := "STATUS=" + status
		if n.health.answers() == nil { // on a full disk, too, the start has succeeded
			message += "\n" + daemon.SdNotifyReady
		}
		if status != lastStatus {
			notify(message)
			lastStatus = status
		}
		if silence > 0 && time.Since(last) > silence/3 && n.engine.Alive() == nil {
			notify(daemon.SdNotifyWatchdog)
			last = time.Now()
		}
	}
}

// If a message is lost, systemd's own time limits apply.
func notify(message string) { _, _ = daemon.SdNotify(false, message) }
