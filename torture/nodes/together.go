package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// together kills a node that does nothing but fold, and the server that leads a
// stream it depends on, at the same moment: the leases by which the others see that
// it is gone stand still while there is no leader.
//
// Telemetry may be taken all the while, where another server leads it. What counts is
// when both it and the first verdicts are stored again, and from then on all.
func (s *system) together(ctx context.Context, rnd *rand.Rand) (back, all time.Duration, err error) {
	if err := s.startFolder(ctx); err != nil {
		return 0, 0, err
	}
	defer s.folder.Kill()
	led, server := streams[rnd.IntN(2)], 0 // TELEMETRY or STATES
	if err := nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) (err error) {
		server, err = s.cluster.leader(ctx, led)
		return err
	}); err != nil {
		return 0, 0, err
	}
	s.a.Logf("server %d, the leader of %s, and a node that folds are killed together", server, led)
	s.load.stalls.begin(time.Now())
	s.watch.begin()
	if err := s.folder.Signal(syscall.SIGKILL); err != nil {
		return 0, 0, err
	}
	s.cluster.servers[server].Kill()
	struck := time.Now()
	const when = "while a server and a node that folds are killed"
	s.promise(ctx, outageWithin, when, func() error {
		return errors.Join(s.load.stalls.flowing(struck), s.follow.someNewerThan(vehicle.At(struck)))
	})
	flowing := time.Now()
	s.promise(ctx, outageWithin, when, func() error { return s.follow.newerThan(vehicle.At(flowing)) })
	back, all = flowing.Sub(struck), time.Since(flowing)
	s.a.Logf("samples and verdicts are stored again after %.1f s, and every car had a new verdict %.1f s after that", back.Seconds(), all.Seconds())
	if err := s.cluster.servers[server].Start(); err != nil {
		return 0, 0, err
	}
	s.settle(ctx, "after a server and a node that folds were killed")
	return back, all, nil
}

// startFolder starts a node that only folds and waits until it has partitions.
// Which they are is up to its name, which it draws: a few get none.
func (s *system) startFolder(ctx context.Context) error {
	for i := range 20 {
		dir := filepath.Join(s.a.Dir, fmt.Sprintf("folder-%d", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		var n *nodeprocess.Node
		if err := nodeprocess.Until(ctx, startWithin, func(ctx context.Context) (err error) {
			n, err = nodeprocess.Start(ctx, nodeprocess.Options{Binary: s.a.Binary, Dir: dir, Flags: append(s.flags(), "--roles", "derive")})
			return err
		}); err != nil {
			return err
		}
		s.folder = n
		var partitions float64
		if err := nodeprocess.Until(ctx, startWithin, func(ctx context.Context) error {
			m, err := n.Metrics(ctx)
			if err == nil && m["carstate_fold_members"] != carstates+1 {
				err = fmt.Errorf("%g nodes share the folding", m["carstate_fold_members"])
			}
			partitions = m["carstate_fold_partitions"]
			return err
		}); err != nil {
			n.Kill()
			return err
		}
		if partitions > 0 {
			since := time.Now()
			s.promise(ctx, settleWithin, "after one more node folds", func() error { return s.follow.newerThan(vehicle.At(since)) })
			return nil
		}
		if err := n.Stop(); err != nil {
			return err
		}
	}
	return errors.New("of 20 nodes none was given a partition to fold")
}
