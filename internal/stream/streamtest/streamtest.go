// Package streamtest starts real engines for tests.
package streamtest

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"carstate/internal/stream"
)

// Open opens an engine and closes it with the test.
func Open(t testing.TB, c stream.Config) *stream.Engine {
	t.Helper()
	e, err := stream.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// Embedded opens an embedded engine in a directory of the test's own, with several
// partitions, so that what mixes them up is noticed.
func Embedded(t testing.TB) *stream.Engine {
	t.Helper()
	return Open(t, stream.Config{DataDir: t.TempDir(), Partitions: 4})
}

// External starts a NATS server that listens on a free port of the loopback
// address, as an operator would run it, and returns its URL.
func External(t testing.TB) string {
	t.Helper()
	return StartServer(t).URL()
}

// Server is a NATS server that a test may stop and start again.
type Server struct {
	t    testing.TB
	opts server.Options
	run  *server.Server // nil while it is stopped
}

// StartServer starts a server that ends with the test.
func StartServer(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "carstate-nats-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, opts: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT,
		JetStream: true, StoreDir: dir, SyncAlways: true,
		NoSigs: true, NoLog: true,
	}}
	t.Cleanup(func() {
		s.Stop()
		// The server ends before the last of its batches does, which may
		// still make a file.
		for tries := 0; ; tries++ {
			if err := os.RemoveAll(dir); err == nil {
				return
			} else if tries == 100 {
				t.Error(err)
				return
			}
			runtime.Gosched()
		}
	})
	s.Start()
	return s
}

// URL is where the server listens, the same after each start.
func (s *Server) URL() string { return s.run.ClientURL() }

// Start starts the server on its directory and, from the second time on, on the
// port that it had.
func (s *Server) Start() {
	s.t.Helper()
	opts := s.opts
	run, err := server.NewServer(&opts)
	if err != nil {
		s.t.Fatal(err)
	}
	run.Start()
	if !run.ReadyForConnections(10 * time.Second) {
		s.t.Fatal("the NATS server did not start")
	}
	s.run, s.opts.Port = run, run.Addr().(*net.TCPAddr).Port
}

// Stop stops the server and waits until it is gone.
func (s *Server) Stop() {
	if s.run != nil {
		s.run.Shutdown()
		s.run.WaitForShutdown()
		s.run = nil
	}
}
