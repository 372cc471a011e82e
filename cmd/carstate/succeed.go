package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"carstate/internal/access"
	"carstate/internal/stream"
)

// outlive returns when the node is to end, as wait does. Where a stream of the
// cluster turns out to be another than the one that the node's tables were made
// from, a successor takes its place, in the same process and on the same ports.
func (s *service) outlive(ctx context.Context) (*service, error) {
	// Whatever is under way then, the supervisor hears of it at once.
	defer context.AfterFunc(ctx, func() { notify(daemon.SdNotifyStopping) })()
	var made successions
	for {
		err := s.wait(ctx)
		if s.config.URLs == "" || !errors.Is(err, stream.ErrReplaced) {
			return s, err
		}
		next, failed := s.replace(ctx, &made)
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

// mostSuccessions is how many successors a node may have in an hour. With the pauses
// before them these take five minutes: then nobody makes streams anew by hand.
const mostSuccessions = 10

// successions are when the successors of the last hour were begun.
type successions []time.Time

// pause is how long to wait before the next successor is made, or false if there
// were too many.
func (m *successions) pause(now time.Time) (time.Duration, bool) {
	*m = slices.DeleteFunc(*m, func(t time.Time) bool { return now.Sub(t) >= time.Hour })
	n := len(*m)
	switch {
	case n >= mostSuccessions:
		return 0, false
	case n == 0:
		*m = append(*m, now)
		return 0, true
	}
	p := min(time.Second<<(n-1), time.Minute)
	*m = append(*m, now.Add(p))
	return p, true
}

// replace makes successors until one can answer: an operator who makes several
// streams anew replaces one after the other, also while a successor reads them.
func (s *service) replace(ctx context.Context, made *successions) (*service, error) {
	for {
		pause, ok := made.pause(time.Now())
		if !ok {
			return nil, fmt.Errorf("streams of the cluster were replaced %d times within an hour: find out who makes them anew", mostSuccessions)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		next, err := s.succeed(ctx)
		if ctx.Err() != nil || !errors.Is(err, stream.ErrReplaced) {
			return next, err
		}
		s.log.Warn("a stream was replaced again while the new tables were made", "error", access.OneLine(err))
	}
}

// succeed makes a new node beside this one, which answers from its old tables for
// as long as it may, and ends this one once the new one can answer. If the process
// is to end meanwhile, the one that goes ends beside the one that is left.
func (s *service) succeed(ctx context.Context) (*service, error) {
	s.log.Warn("a stream of the cluster was replaced: all tables are made anew, and the old ones answer meanwhile")
	var next *service
	prepared := inBackground(func() (err error) {
		next, err = prepare(ctx, s.flags, s.config, s.log, s.ports.share)
		return err
	})
	select {
	case err := <-prepared:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done(): // it may hang in a question to the cluster
		s.beside = inBackground(func() error {
			if err := <-prepared; err != nil {
				return nil // as it must, with the context
			}
			return next.end()
		})
		return nil, ctx.Err()
	}
	err := next.awaitTables(ctx)
	if ctx.Err() != nil {
		s.beside = inBackground(next.end)
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, next.end())
	}
	next.serve()
	next.beside = inBackground(s.end)
	select {
	case err := <-next.beside:
		next.beside = nil
		if err != nil {
			next.log.Warn("the node with the old tables did not end as it should", "error", access.OneLine(err))
		}
	case <-ctx.Done():
	}
	next.log.Info("the new tables answer")
	return next, nil
}

func inBackground(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return ended
}

// awaitTables waits until queries can be answered.
func (s *service) awaitTables(ctx context.Context) error {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for s.health.answersNow() != nil {
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
		port, ok := x.(*net.TCPListener)
		if !ok {
			return nil, fmt.Errorf("the port of %s cannot be opened a second time: it is a %T", flag, x)
		}
		f, err := port.File()
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
