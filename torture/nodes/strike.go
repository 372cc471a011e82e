package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// kind is a way to disable a NATS server and to bring it back.
type kind struct {
	name         string
	strike, heal func(c *natsCluster, server int) error
}

// killed is the name of the kind for which limits are promised.
const killed = "killed"

var kinds = []kind{
	{killed,
		func(c *natsCluster, i int) error { c.servers[i].Kill(); return nil },
		func(c *natsCluster, i int) error { return c.servers[i].Start() }},
	{"stopped",
		func(c *natsCluster, i int) error { return c.servers[i].Pause() },
		func(c *natsCluster, i int) error { return c.servers[i].Resume() }},
	{"cut off",
		func(c *natsCluster, i int) error { return c.net.cable(i, "down") },
		func(c *natsCluster, i int) error { return c.net.cable(i, "up") }},
}

const (
	// outageWithin is the time limit for writes to resume while a server is disabled. If it is
	// exceeded, the row gives up; the aim is a shorter time.
	outageWithin = 30 * time.Second
	// settleWithin is the time limit for a complete recovery after the server is back.
	settleWithin = 90 * time.Second
)

// disturb carries out all disturbances, and returns early if ctx ends. Each kind occurs once before
// any kind occurs again. The first is of the kind killed: limits are promised for that kind only,
// so it must be measured even if there is only one disturbance. Every other disturbance is lasting:
// it hits the leader of a stream until writes and verdicts resume. The others hit any server for
// seconds.
func (s *system) disturb(ctx context.Context) {
	rnd := s.a.Rand(1)
	var order []kind
	for i := range s.a.Count {
		if len(order) == 0 {
			order = slices.Clone(kinds)
			mixed := order[1:] // without the kind killed
			if i > 0 {
				mixed = order
			}
			rnd.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		}
		if i%3 == 0 {
			s.freeze(ctx, rnd)
		}
		server, led, lasting := rnd.IntN(servers), "", i%2 == 0
		if lasting {
			led = streams[rnd.IntN(3)] // the streams that are written to all the time
			server = s.cluster.leader(ctx, led)
			led = ", the leader of " + led + ","
		}
		s.a.Logf("%d of %d: server %d%s is %s", i+1, s.a.Count, server, led, order[0].name)
		s.strike(ctx, rnd, order[0], lasting, server)
		must.Do(ctx.Err())
		order = order[1:]
	}
}

// strike disables one server and brings it back.
func (s *system) strike(ctx context.Context, rnd *rand.Rand, t kind, lasting bool, server int) {
	at := time.Now()
	s.load.Begin(at)
	s.watch.begin()
	must.Do(t.strike(s.cluster, server))
	if lasting {
		s.outlast(ctx, fmt.Sprintf("while server %d is %s", server, t.name), time.Now(), "a server "+t.name+": ")
		row.Pause(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	} else {
		row.Pause(ctx, 200*time.Millisecond+time.Duration(rnd.Int64N(int64(6*time.Second))))
	}
	must.Do(t.heal(s.cluster, server))
	s.settle(ctx, fmt.Sprintf("after server %d was %s", server, t.name))
	stood, over := s.load.Worst(time.Now())
	s.a.Logf("writes stood still for %.1f s at most, until %.1f s after; the oldest copy was %.1f s old", stood.Seconds(),
		over.Sub(at).Seconds(), s.watch.greatestAge().Seconds())
	s.take("a server "+t.name+": longest until writes are acknowledged again", stood)
	s.take("greatest age of a node's copy", s.watch.greatestAge())
	if d, ok := s.watch.feedsBehind(); ok {
		s.take("a server "+t.name+": a node's copies are current again after it can store, longest", d)
	}
}

// outlast waits until the service works without the struck server: every stream has a leader,
// samples are acknowledged, and every car has a new verdict. It measures the time from the end of
// the writers' longest wait for an acknowledgement until every car had a newer verdict. That time
// does not begin at the strike, because samples may still be acknowledged until the nodes notice
// that they cannot store states.
func (s *system) outlast(ctx context.Context, when string, struck time.Time, of string) {
	var led time.Time
	s.promise(ctx, outageWithin, when, func() error {
		if led.IsZero() {
			if err := s.cluster.led(ctx); err != nil {
				return cmp.Or(s.load.Flowing(struck), err)
			}
			led = time.Now()
		}
		return s.load.Flowing(led)
	})
	_, over := s.load.Worst(time.Now())
	s.promise(ctx, outageWithin, when, func() error { return s.follow.newerThan(vehicle.At(over)) })
	s.take(of+"then until every car has a new verdict, longest", time.Since(over))
	s.a.Logf("writes are acknowledged again after %.1f s, and every car had a new verdict %.1f s after that",
		over.Sub(struck).Seconds(), time.Since(over).Seconds())
}

// settle waits until the system has recovered: new samples are acknowledged and folded, all nodes
// are ready and have up-to-date copies of the states, and no server is missing.
func (s *system) settle(ctx context.Context, when string) {
	since := time.Now()
	s.promise(ctx, settleWithin, when, func() error {
		err := cmp.Or(s.load.Flowing(since), s.follow.newerThan(vehicle.At(since)), s.watch.healthy())
		if err == nil {
			err = s.cluster.whole(ctx)
		}
		return err
	})
}

// freeze stops the process of a node that folds until others have taken its partitions.
func (s *system) freeze(ctx context.Context, rnd *rand.Rand) {
	i := s.owner(ctx, rnd)
	s.a.Logf("node %d, which folds, is stopped", i)
	s.watch.begin()
	s.watch.frozen[i].Store(true)
	s.asking.frozen[i].Store(true)
	s.take("a node that folds is stopped: until every car has a new verdict, longest",
		s.taken(ctx, s.nodes[i], syscall.SIGSTOP, fmt.Sprintf("while node %d is stopped", i)))
	row.Pause(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	must.Do(s.nodes[i].Signal(syscall.SIGCONT))
	s.watch.frozen[i].Store(false)
	s.settle(ctx, fmt.Sprintf("after node %d was stopped", i))
	s.asking.frozen[i].Store(false)
}

// taken signals a node that folds, and returns the time until its partitions are taken.
func (s *system) taken(ctx context.Context, n *nodeprocess.Node, signal syscall.Signal, when string) time.Duration {
	must.Do(n.Signal(signal))
	at := time.Now() // only now, since the node may have folded samples until the signal
	s.promise(ctx, outageWithin, when, func() error { return s.follow.newerThan(vehicle.At(at)) })
	s.a.Logf("its partitions were taken after %.1f s", time.Since(at).Seconds())
	return time.Since(at)
}

// owner returns a random node that has partitions.
func (s *system) owner(ctx context.Context, rnd *rand.Rand) (node int) {
	for _, node = range rnd.Perm(len(s.nodes)) {
		if must.Get(s.nodes[node].Metrics(ctx))["carstate_fold_partitions"] > 0 {
			return node
		}
	}
	must.Fail("no node has a partition to fold")
	return 0
}

// promise waits until the function holds returns nil. It reports a finding if that does not happen
// within limit. The parameter when says in the finding what was disabled.
func (s *system) promise(ctx context.Context, limit time.Duration, when string, holds func() error) {
	if err := nodeprocess.Until(ctx, limit, func(context.Context) error { return holds() }); err == nil ||
		ctx.Err() != nil {
		return
	}
	if err := holds(); err != nil {
		s.a.Wrong("%s, for %s: %v", when, limit, err)
	}
}

// folderDies kills a node that has only the role derive, while all NATS servers run.
func (s *system) folderDies(ctx context.Context) {
	s.startFolder(ctx)
	defer s.folder.Kill()
	s.a.Logf("a node that folds is killed")
	s.watch.begin()
	s.take("a node that folds is killed: until every car has a new verdict",
		s.taken(ctx, s.folder, syscall.SIGKILL, "while a node that folds is killed"))
	s.settle(ctx, "after a node that folds was killed")
}

// together kills two processes at the same moment: a node that has only the role derive, and the
// NATS server that leads the stream of the telemetry or of the states. While the states' stream has
// no leader, no node can renew its lease, so the other nodes cannot tell that the killed node is
// gone.
//
// Two times are measured: until samples are acknowledged and the first new verdicts are stored
// (acknowledgements are not interrupted if the telemetry's stream keeps its leader), and the
// further time until every car has a new verdict.
func (s *system) together(ctx context.Context) {
	rnd := s.a.Rand(3)
	s.startFolder(ctx)
	defer s.folder.Kill()
	led := streams[rnd.IntN(2)] // TELEMETRY or STATES
	server := s.cluster.leader(ctx, led)
	s.a.Logf("server %d, the leader of %s, and a node that folds are killed together", server, led)
	s.load.Begin(time.Now())
	s.watch.begin()
	must.Do(s.folder.Signal(syscall.SIGKILL))
	s.cluster.servers[server].Kill()
	struck := time.Now()
	const when = "while a server and a node that folds are killed"
	s.promise(ctx, outageWithin, when, func() error {
		return errors.Join(s.load.Flowing(struck), s.follow.someNewerThan(vehicle.At(struck)))
	})
	flowing := time.Now()
	s.promise(ctx, outageWithin, when, func() error { return s.follow.newerThan(vehicle.At(flowing)) })
	s.take("a server and a node that folds are killed together: until samples are acknowledged and verdicts stored again",
		flowing.Sub(struck))
	s.take("then until every car has a new verdict", time.Since(flowing))
	s.a.Logf("samples and verdicts are stored again after %.1f s, and every car had a new verdict %.1f s after that",
		flowing.Sub(struck).Seconds(), time.Since(flowing).Seconds())
	must.Do(s.cluster.servers[server].Start())
	s.settle(ctx, "after a server and a node that folds were killed")
}

// startFolder starts a node that has only the role derive, and waits until it folds. The node's
// name decides which partitions it gets. A few names get none; then startFolder tries again with
// another name.
func (s *system) startFolder(ctx context.Context) {
	for range 20 {
		s.folders++
		s.folder = s.startNode(ctx, fmt.Sprintf("folder-%d", s.folders), "--roles", "derive")
		// Wait until the node folds, so that the previous owners have released the
		// partitions. Otherwise the death of the node would change nothing.
		folds := func(m nodeprocess.Metrics) bool {
			return m["carstate_fold_members"] == carstates+1 &&
				(m["carstate_fold_partitions"] == 0 || m["carstate_samples_folded_total"] > 0)
		}
		m := must.Get(s.folder.AwaitMetrics(ctx, startWithin, folds))
		if m["carstate_fold_partitions"] > 0 {
			since := time.Now()
			s.promise(ctx, settleWithin, "after one more node folds",
				func() error { return s.follow.newerThan(vehicle.At(since)) })
			return
		}
		must.Do(s.folder.Stop())
	}
	must.Fail("of 20 nodes none was given a partition to fold")
}
