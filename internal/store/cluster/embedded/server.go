// Package embedded keeps the data directory of a node with an engine of its own, and runs
// the NATS server in it. The server trusts its files more than they deserve, so they are
// read and verified before it starts: the package knows how that server writes them.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"carstate/internal/store/codec"

	"github.com/nats-io/nats-server/v2/server"
)

// compactEvery is how often the embedded server tidies up overwritten records
// (it does so when it syncs). With 5 s a store of skewed updates stays a
// quarter of the size that the default of 2 min gives.
const compactEvery = 5 * time.Second

// startTimeout bounds the start of the embedded server. Recovery reads the
// index of every stream; 10 M vehicles take less than a minute.
const startTimeout = 5 * time.Minute

// Start runs the embedded server. It opens no port: only this process
// can reach it, through an in-process connection.
//
// jam is told of the first write error. The server says it nowhere but in its log,
// stores nothing more in that stream, and does not even answer.
func Start(ctx context.Context, dir string, sync time.Duration, log *slog.Logger, jam func(error)) (*server.Server, error) {
	opts := &server.Options{
		ServerName:             "carstate",
		DontListen:             true,
		NoSigs:                 true,
		JetStream:              true,
		StoreDir:               filepath.Join(dir, engineDir),
		SyncAlways:             sync == 0,
		SyncInterval:           sync,
		DisableJetStreamBanner: true,
		// Streams bound themselves; the server must not refuse to make
		// them because the disk is smaller than all limits together.
		JetStreamMaxStore: 1 << 50,
	}
	if sync == 0 {
		opts.SyncInterval = compactEvery
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("the embedded engine cannot be set up: %w", err)
	}
	fatal := make(chan string, 1)
	started := new(atomic.Bool)
	s.SetLoggerV2(serverLog{log, fatal, started, jam}, false, false, false)
	s.Start()
	err = waitForServer(ctx, s, opts.StoreDir, fatal)
	if err == nil && !s.JetStreamEnabled() {
		err = errors.New("the embedded engine could not open its store; its log says why (--log-level debug)")
	}
	if err != nil {
		Stop(s)
		return nil, err
	}
	started.Store(true)
	return s, nil
}

// waitForServer returns nil once the server works. A server that has given up
// goes on running and only says so.
func waitForServer(ctx context.Context, s *server.Server, store string, fatal <-chan string) error {
	deadline := time.Now().Add(startTimeout)
	for {
		select {
		case why := <-fatal:
			return fmt.Errorf("the embedded engine did not start: %s: check that this user may read and write all of %s", why, store)
		case <-ctx.Done():
			return fmt.Errorf("the embedded engine did not start: %w", ctx.Err())
		default:
		}
		switch {
		case s.ReadyForConnections(100 * time.Millisecond):
			return nil
		case time.Now().After(deadline) || !s.Running():
			return errors.New("the embedded engine did not start; its log says why (--log-level debug)")
		}
	}
}

// Stop ends the embedded server and waits until it has ended.
func Stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// serverLog passes the server's log on. Its notices are for people who know
// NATS, so they come as debug lines.
type serverLog struct {
	log   *slog.Logger
	fatal chan<- string // takes why the server gave up
	// started is set once the server works. Before, it warns of what a crash
	// leaves behind, which was looked at and found harmless before it started.
	started *atomic.Bool
	jam     func(error) // takes that a stream met a write error
}

// isWriteError reports whether a line of the server's log says that one of our
// streams met a write error. The files in which a batch waits for its commit meet
// them too, but are made anew for the next batch.
func isWriteError(text string) bool {
	return slices.ContainsFunc(codec.Streams, func(name string) bool {
		ofFiles := strings.HasPrefix(text, "Filestore ["+name+"] Critical write error")
		return ofFiles || strings.HasPrefix(text, "JetStream stream ") && strings.Contains(text, " > "+name+"' critical write error")
	})
}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug("engine: " + line(f, v)) }
func (l serverLog) Debugf(f string, v ...any)  {}
func (l serverLog) Tracef(f string, v ...any)  {}

func (l serverLog) Errorf(f string, v ...any) {
	text := line(f, v)
	if isWriteError(text) {
		l.jam(errors.New(text))
	}
	l.log.Error("engine: " + text)
}

func (l serverLog) Warnf(f string, v ...any) {
	if !l.started.Load() {
		l.Noticef(f, v...)
		return
	}
	l.log.Warn("engine: " + line(f, v))
}

// Fatalf does not end the process: who waits for the start is told, and reports
// it. Later it is an error like others.
func (l serverLog) Fatalf(f string, v ...any) {
	select {
	case l.fatal <- line(f, v):
	default:
		l.log.Error("engine: " + line(f, v))
	}
}

func line(f string, v []any) string { return strings.TrimSpace(fmt.Sprintf(f, v...)) }
