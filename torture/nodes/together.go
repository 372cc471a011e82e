package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// folderDies kills a node that has only the role derive, while all servers run. It returns the time
// until other nodes have taken its partitions.
func (s *system) folderDies(ctx context.Context) (taken time.Duration) {
	s.startFolder(ctx)
	defer s.folder.Kill()
	s.a.Logf("a node that folds is killed")
	s.watch.begin()
	must.Do(s.folder.Signal(syscall.SIGKILL))
	at := time.Now() // only now, since the node may have folded samples until it was killed
	s.promise(ctx, outageWithin, "while a node that folds is killed",
		func() error { return s.follow.newerThan(vehicle.At(at)) })
	taken = time.Since(at)
	s.a.Logf("its partitions were taken after %.1f s", taken.Seconds())
	s.settle(ctx, "after a node that folds was killed")
	return taken
}

// together kills two processes at the same moment: a node that has only the role derive, and the
// NATS server that leads the stream of the telemetry or of the states. While the states' stream has
// no leader, no node can renew its lease, so the other nodes cannot tell that the killed node is
// gone.
//
// The result back is the time until samples are acknowledged and the first new verdicts are stored.
// (Acknowledgements are not interrupted if the telemetry's stream keeps its leader.) The result all
// is the further time until every car has a new verdict.
func (s *system) together(ctx context.Context, rnd *rand.Rand) (back, all time.Duration) {
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
	back, all = flowing.Sub(struck), time.Since(flowing)
	s.a.Logf("samples and verdicts are stored again after %.1f s, and every car had a new verdict %.1f s after that",
		back.Seconds(), all.Seconds())
	must.Do(s.cluster.servers[server].Start())
	s.settle(ctx, "after a server and a node that folds were killed")
	return back, all
}

// startFolder starts a node that has only the role derive, and waits until it folds. The node's
// name decides which partitions it gets. A few names get none; then startFolder tries again with
// another name.
func (s *system) startFolder(ctx context.Context) {
	for range 20 {
		s.folders++
		s.folder = must.Get(s.startNode(ctx, fmt.Sprintf("folder-%d", s.folders), "--roles", "derive"))
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
