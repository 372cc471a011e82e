// Package clustertest starts real cluster engines, and NATS servers for them, for tests. A
// test of a package that uses the engine looks like this:
//
//	url := clustertest.External(t) // a NATS server that ends with the test
//	e := clustertest.Open(t, cluster.Config{Partitions: 4, URLs: url})
//	if err := e.Append(t.Context(), samples); err != nil {
//		t.Fatal(err)
//	}
//
// [StartServer] starts a server that the test may stop and start again. [StartCluster] starts three
// server processes that the test may kill, pause and resume. The TestMain of a package that uses
// StartCluster or [StartProcess] calls [RemoveServerBinary] at the end.
package clustertest

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store/cluster"
)

// Open opens an engine and closes it with the test.
func Open(t testing.TB, c cluster.Config) *cluster.Engine {
	t.Helper()
	e, err := cluster.Open(t.Context(), c)
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

// External starts a NATS server on a free port of the loopback address, configured as an operator
// would configure it, and returns its URL.
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
		// After its shutdown, the server may still finish a batch, which can create a file, so try
		// again.
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

// URL returns the address of the server, which is the same after each start.
func (s *Server) URL() string { return s.run.ClientURL() }

// Start starts the server on its directory. Each later start uses the port of the first start.
func (s *Server) Start() {
	s.t.Helper()
	opts := s.opts
	s.run = Serve(s.t, &opts)
	s.opts.Port = s.run.Addr().(*net.TCPAddr).Port
}

// Serve starts a server with the caller's options. It ends with the test.
func Serve(t testing.TB, opts *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server did not start")
	}
	return s
}

// JetStream returns an operator's connection for managing the server's streams. It is closed
// when the test ends.
func (s *Server) JetStream() jetstream.JetStream {
	s.t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return js
}

// Stop stops the server and waits until it has ended.
func (s *Server) Stop() {
	if s.run != nil {
		s.run.Shutdown()
		s.run.WaitForShutdown()
		s.run = nil
	}
}
