package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"carstate/internal/stream"
)

// outlive returns when the node is to end, as wait does. Where a stream of the
// cluster turns out to be another than the one that the node's tables were made
// from, a successor takes its place, in the same process and on the same ports.
func (s *service) outlive(ctx context.Context) (*service, error) {
	for {
		err := s.wait(ctx)
		if s.config.URLs == "" || !errors.Is(err, stream.ErrReplaced) {
			return s, err
		}
		next, failed := s.succeed(ctx)
		switch {
		case failed == nil:
			s = next
		case ctx.Err() != nil:
			return s, nil
		default:
			return s, errors.Join(err, fmt.Errorf("the tables cannot be made anew: %w", failed))
		}
	}
}

// succeed makes a new node beside this one, which answers from its old tables for
// as long as it may, and ends this one once the new one can answer.
func (s *service) succeed(ctx context.Context) (*service, error) {
	s.log.Warn("a stream of the cluster was replaced: all tables are made anew, and the old ones answer meanwhile")
	next, err := prepare(ctx, s.flags, s.config, s.log, s.ports.share)
	if err != nil {
		return nil, err
	}
	if err := next.awaitTables(ctx); err != nil {
		return nil, errors.Join(err, next.end())
	}
	next.serve()
	if err := s.end(); err != nil {
		next.log.Warn("the node with the old tables did not end as it should", "error", oneLine(err))
	}
	next.log.Info("the new tables answer")
	return next, nil
}

// awaitTables waits until queries can be answered.
func (s *service) awaitTables(ctx context.Context) error {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for s.health.canAnswer() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.failed:
			return err
		case err := <-s.engine.Failed():
			return err
		case <-tick.C:
		}
	}
	return nil
}

// share opens the same ports a second time. Whoever accepts a connection first has
// it, and none is refused as long as one of the two is open.
func (l listeners) share() (_ listeners, err error) {
	open := make(listeners)
	defer func() {
		if err != nil {
			open.close()
		}
	}()
	for flag, x := range l {
		f, err := x.(*net.TCPListener).File()
		if err != nil {
			return nil, err
		}
		open[flag], err = net.FileListener(f)
		if err = errors.Join(err, f.Close()); err != nil {
			delete(open, flag)
			return nil, err
		}
	}
	return open, nil
}
