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

// folderDies kills a node that does nothing but fold, with all servers there.
func (s *system) folderDies(ctx context.Context) (taken time.Duration, err error) {
	if err := s.startFolder(ctx); err != nil {
		return 0, err
	}
	defer s.folder.Kill()
	s.a.Logf("a node that folds is killed")
	s.watch.begin()
	if err := s.folder.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	at := time.Now() // before, it might still have folded what is from then on
	s.promise(ctx, outageWithin, "while a node that folds is killed", func() error { return s.follow.newerThan(vehicle.At(at)) })
	taken = time.Since(at)
	s.a.Logf("its partitions were taken after %.1f s", taken.Seconds())
	s.settle(ctx, "after a node that folds was killed")
	return taken, nil
}

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
	s.load.Begin(time.Now())
	s.watch.begin()
	if err := s.folder.Signal(syscall.SIGKILL); err != nil {
		return 0, 0, err
	}
	s.cluster.servers[server].Kill()
	struck := time.Now()
	const when = "while a server and a node that folds are killed"
	s.promise(ctx, outageWithin, when, func() error {
		return errors.Join(s.load.Flowing(struck), s.follow.someNewerThan(vehicle.At(struck)))
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

// startFolder starts a node that only folds and waits until it does. Which
// partitions it gets is up to its name, which it draws: a few get none.
func (s *system) startFolder(ctx context.Context) error {
	for range 20 {
		s.folders++
		dir := filepath.Join(s.a.Dir, fmt.Sprintf("folder-%d", s.folders))
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
		var has float64
		if err := nodeprocess.Until(ctx, startWithin, func(ctx context.Context) error {
			m, err := n.Metrics(ctx)
			if err == nil && m["carstate_fold_members"] != carstates+1 {
				err = fmt.Errorf("%g nodes share the folding", m["carstate_fold_members"])
			}
			has = m["carstate_fold_partitions"]
			return err
		}); err != nil {
			n.Kill()
			return err
		}
		if has > 0 {
			// Until those who had them give them up, nothing would have to be taken.
			if err := nodeprocess.Until(ctx, startWithin, func(ctx context.Context) error {
				m, err := n.Metrics(ctx)
				if err == nil && m["carstate_samples_folded_total"] == 0 {
					err = errors.New("the node that was added folds nothing")
				}
				return err
			}); err != nil {
				n.Kill()
				return err
			}
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
