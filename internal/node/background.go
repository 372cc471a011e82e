package node

import (
	"context"
	"os"
	"sync"
	"time"

	"example.org/carstate/internal/derive"
	"example.org/carstate/internal/store"
)

// startBackground starts all tasks that run until the node ends, except the servers. It starts them
// all at once. Only one task waits for another one: the task that folds telemetry into states waits
// for the task that loads the map of roads.
//
// In the body of this function, the comment on each task says what a crash of the process loses. A
// crash loses nothing else, for two reasons. No task acknowledges anything to a client. And the
// tables, from which requests are answered, are copies of what is stored.
func (n *Node) startBackground() {
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	run := func(f func(context.Context)) {
		n.background(func() error { f(ctx); return nil })
	}

	// The tables that requests are answered from. The node is ready once all three feeds have
	// caught up; until then its servers answer 503. A crash loses the tables, and the next start
	// reads them from the store again.
	//
	// Tokens and sources are loaded first, because no caller can be authenticated without them.
	// Operators can work as soon as both are loaded. A token that was revoked on another node is
	// refused here once this feed has delivered the revocation.
	n.background(func() error { return n.records.RunTokens(ctx, n.health.recordsCaughtUp) })
	n.background(func() error { return n.records.RunSources(ctx, n.health.recordsCaughtUp) })
	// The owners of the partitions publish the answers (answers.go). A node that neither answers
	// queries nor shows vehicles follows only the heartbeats, from which it learns how old its copies
	// of records are.
	n.background(func() error {
		if !n.config.needsStates() {
			return n.cluster.FollowCursors(ctx, n.health.caughtUp)
		}
		return n.engine.FollowAnswers(ctx, n.answers.Put, n.health.caughtUp)
	})
	// Vehicles that are silent for 30 days leave the fleet table; checkpoints drop their states.
	// After a crash, these vehicles are in the table again until the first expiry, an hour after
	// the start.
	run(n.expire)

	// The next tasks are monitors of the node itself. They store nothing, so a crash loses nothing.
	//
	// The probe measures the queueing delay, from which overloaded listeners set their limit of
	// connections.
	n.background(func() error { return n.probe.Run(ctx) })
	// notifySupervisor tells systemd that the node is ready, that it is alive, and what it lacks.
	// If the process hangs, these messages stop and systemd restarts it.
	run(n.notifySupervisor)
	// The console's monitor collects the console's figures and curves. It runs all the time, so
	// that the curves have no gap when an operator opens the page.
	if n.config.has(Admin) {
		run(n.monitor.Run)
		run(n.answers.changes.Run)
	}
	// watch reads the certificate's files, so that a renewed certificate is used without a restart.
	if n.cert != nil {
		run(n.cert.watch)
	}

	// The counts of each token's calls are stored once a minute and at the end. A crash loses the
	// counts of the last minute. They are only displayed, so no decision depends on them.
	if n.config.has(Query) {
		run(n.records.KeepUsage)
	}

	// The map of roads is first read from the store, then kept up to date and stored every 5
	// minutes and at the end. A crash loses what the map has learned since it was last stored: at
	// most a quarter of an hour of each stretch's profile. Later telemetry replaces the loss.
	roadsLoaded := make(chan struct{})
	if n.config.knowsRoads() {
		run(func(ctx context.Context) {
			n.records.KeepRoads(ctx, n.roads, n.config.has(Derive), func() { close(roadsLoaded) })
		})
	}

	if !n.config.has(Derive) {
		return
	}
	// Telemetry is folded into states, which are stored in checkpoints. After a crash, the next start
	// folds the telemetry since the last checkpoint again, before it answers. Folding waits up to
	// roadsWithin for the map of roads, because the driving rules use it.
	//
	// This step and the two steps below stop for good once a newer version has stored something
	// that this version cannot fold.
	folding, giveUp := context.WithCancel(ctx)
	whileFolding := func(f func(context.Context)) {
		n.background(func() error { f(folding); return nil })
	}
	deriver := n.newDeriver(folding, giveUp)
	whileFolding(func(ctx context.Context) {
		n.awaitRoads(ctx, roadsLoaded)
		deriver.Run(ctx)
	})
	// Telemetry up to the cursors is removed after the retention. After a crash, this telemetry
	// stays a little longer.
	whileFolding(n.engine.Trim)
	// The bytes that name forgotten vehicles are erased from the disk. The tombstone of a vehicle
	// records the completed steps, so after a crash the next start continues with the step that
	// follows.
	whileFolding(n.records.Erase)
}

// background runs f in a goroutine. If f returns an error, the node ends.
func (n *Node) background(f func() error) {
	n.running.Go(func() {
		if err := f(); err != nil {
			n.failed <- err
		}
	})
}

// roadsWithin is the maximum time for which the folding of telemetry into states waits for the map
// of roads. After that, the node folds without the map. Loading a million stretches of road takes
// about a second.
const roadsWithin = 30 * time.Second

// awaitRoads waits until the map of roads is loaded or ctx ends. After roadsWithin it logs a
// warning and waits no longer.
func (n *Node) awaitRoads(ctx context.Context, loaded <-chan struct{}) {
	select {
	case <-loaded:
	case <-ctx.Done():
	case <-time.After(roadsWithin):
		n.config.Log.Warn("the profiles of roads are not loaded yet; folding begins without the missing ones")
	}
}

// newDeriver returns the deriver. It calls giveUp if this node must stop folding, because it cannot
// read records of a newer version of carstate, whose nodes then fold instead.
func (n *Node) newDeriver(ctx context.Context, giveUp func()) *derive.Deriver {
	checkpoint := n.config.Checkpoint
	if checkpoint == 0 && n.cluster != nil {
		checkpoint = 30 * time.Second // NATS writes each byte six times
	}
	var grown sync.Once
	c := derive.Config{
		Partitions:      n.engine.Partitions(),
		Fold:            n.roads.Fold,
		Replay:          n.roads.Refold,
		Records:         n.engine,
		AwaitTombstones: n.engine.AwaitTombstones,
		Gone:            n.records.Gone,
		Checkpoint:      checkpoint,
		Log:             n.config.Log,
		Members:         n.joinMembers(ctx),
		Loaded: func(vehicles int) {
			if n.cluster == nil { // partitions are about equally large
				grown.Do(func() { n.fleet.Grow(vehicles * n.engine.Partitions()) })
			}
			n.loaded.Add(int64(vehicles))
		},
	}
	// The name is random, so no other process ever uses it as the owner of a partition or writes
	// under it.
	owner, free := n.member, store.Anyone
	if c.Members != nil {
		free = c.Members.Free
		c.Release = func(ctx context.Context, p int) error { return n.engine.Release(ctx, p, owner) }
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
		return n.engine.Take(ctx, p, owner, states, free)
	}
	d := derive.New(c)
	n.counter("carstate_samples_folded_total", "Samples folded into states by this node.", nil, d.Samples)
	return d
}

// joinMembers makes this node one of the nodes of a cluster that divide the partitions among
// themselves. Without a cluster, it returns nil.
func (n *Node) joinMembers(ctx context.Context) *derive.Members {
	if n.cluster == nil {
		return nil
	}
	leases := n.cluster.Leases()
	host, _ := os.Hostname()
	n.config.Log.Info("joined the nodes that share the partitions", "member", n.member, "host", host, "pid", os.Getpid())
	m := derive.NewMembers(n.member, n.engine.Partitions(), leases, n.config.Log)
	n.background(func() error { return m.Run(ctx) })
	n.gauge("carstate_fold_members", "Nodes that share the partitions, as far as this node knows.",
		func() float64 { members, _ := m.Count(); return float64(members) })
	n.gauge("carstate_fold_partitions", "Partitions that this node is to fold.",
		func() float64 { _, own := m.Count(); return float64(own) })
	return m
}
