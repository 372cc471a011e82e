package clustertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/test/natsprocess"
	"example.org/carstate/internal/test/testkit"
)

// Cluster is three real NATS servers.
type Cluster struct {
	Nodes []*Node
	t     testing.TB
	url   func(addr string) string
	opts  []nats.Option
}

// Node is one server of several.
type Node struct {
	Name   string
	Addr   string
	t      testing.TB
	server *natsprocess.Server
}

// Three is the smallest cluster that survives the loss of a server.
const clusterNodes = 3

// Env is additional.
type Setup struct{ Args, Env []string }

// Configure returns the setup of node i. clients and routes have one address per node, for
// connections of clients and of other nodes.
type Configure func(t testing.TB, dir string, i int, clients, routes []string) Setup

// startTimeout suffices on a busy machine.
const startTimeout = time.Minute

// StartCluster starts servers that sync every write, until the test ends.
func StartCluster(t testing.TB) *Cluster {
	return StartClusterAs(t, "")
}

// more, such as a list of users, is appended to each configuration. opts must permit to create
// streams.
func StartClusterAs(t testing.TB, more string, opts ...nats.Option) *Cluster {
	t.Helper()
	configure := func(t testing.TB, dir string, i int, clients, routes []string) Setup {
		return plainConfig(t, dir, i, clients, routes, more)
	}
	c := StartClusterWith(t, configure, func(addr string) string { return "nats://" + addr }, opts...)
	c.WaitReady()
	return c
}

// To find out whether the cluster is ready, StartClusterWith needs only the permissions that
// carstate needs. The methods of the cluster connect with opts.
func StartClusterWith(t testing.TB, configure Configure, url func(addr string) string, opts ...nats.Option) *Cluster {
	t.Helper()
	testkit.Slow(t, "it starts three NATS servers")
	dir, err := os.MkdirTemp("", "carstate-cluster-")
	testkit.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &Cluster{t: t, url: url, opts: opts}
	t.Cleanup(func() {
		for _, n := range c.Nodes {
			n.Kill()
		}
	})
	for attempt := range startAttempts {
		for _, n := range c.Nodes {
			n.Kill()
		}
		c.Nodes = nil
		clients, routes := freeAddrs(t), freeAddrs(t)
		for i := range clusterNodes {
			own := filepath.Join(dir, fmt.Sprint(attempt), fmt.Sprint(i))
			testkit.NoError(t, os.MkdirAll(own, 0o700))
			n := newNode(t, fmt.Sprintf("nats-%d", i+1), clients[i], configure(t, own, i, clients, routes))
			c.Nodes = append(c.Nodes, n)
			n.Start()
		}
		if err = c.tryEach(); err == nil {
			return c
		}
	}
	t.Fatalf("the cluster: got %v, want it ready", err)
	return nil
}

const startAttempts = 3

// The configuration of each node names the addresses of all, so they are chosen before. Another
// process may take one in between, hence startAttempts.
func freeAddrs(t testing.TB) (addrs []string) {
	t.Helper()
	for range clusterNodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		testkit.NoError(t, err)
		defer l.Close() // only after all addresses are chosen
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// more is at the end of the file.
func plainConfig(t testing.TB, dir string, i int, clients, routes []string, more string) Setup {
	file := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf(`
listen: %q
jetstream { store_dir: %q, sync_interval: always, max_file_store: 1PB }
cluster { name: test, listen: %q, routes: [ "nats-route://%s" ] }
%s`, clients[i], filepath.Join(dir, "store"), routes[i], strings.Join(routes, `", "nats-route://`), more)
	testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return Setup{Args: []string{"--config", file}}
}

// The version of the server is the one that carstate's go.mod requires.
var built struct {
	sync.Mutex
	dir string // "" until the binary is built
}

func serverBinary() (string, error) {
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "carstate-nats-server-")
		if err != nil {
			return "", err
		}
		if _, err := natsprocess.Build(context.Background(), "", dir); err != nil {
			os.RemoveAll(dir)
			return "", err
		}
		built.dir = dir
	}
	return filepath.Join(built.dir, "nats-server"), nil
}

func removeBinary() {
	built.Lock()
	defer built.Unlock()
	os.RemoveAll(built.dir)
	built.dir = ""
}

func newNode(t testing.TB, name, addr string, s Setup) *Node {
	t.Helper()
	binary, err := serverBinary()
	testkit.NoError(t, err)
	return &Node{Name: name, Addr: addr, t: t,
		server: &natsprocess.Server{Binary: binary, Name: name, Args: s.Args, Env: s.Env}}
}

// Start does not wait until the server is ready.
func (n *Node) Start() { n.must(n.server.Start()) }

// Kill is like a crash. After a failure, it logs the server's output.
func (n *Node) Kill() {
	n.server.Kill()
	if n.t.Failed() {
		n.t.Logf("log of %s:\n%s", n.Name, n.server.Log())
	}
}

func (n *Node) Stop() { n.server.Stop() }

func (n *Node) Pause() { n.must(n.server.Pause()) }

func (n *Node) Resume() { n.must(n.server.Resume()) }

func (n *Node) Reload() { n.must(n.server.Reload()) }

func (n *Node) must(err error) {
	n.t.Helper()
	testkit.NoError(n.t, err)
}

func (c *Cluster) URLs() string {
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, c.url(n.Addr))
	}
	return strings.Join(urls, ",")
}

// do calls f, each time with a new connection, until it returns nil, or fails the test with what.
func (c *Cluster) do(what string, f func(ctx context.Context, js jetstream.JetStream) error) {
	c.t.Helper()
	if err := c.try(f); err != nil {
		c.t.Fatalf("%s: got %v, want no error", what, err)
	}
}

func (c *Cluster) try(f func(ctx context.Context, js jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := c.once(ctx, f)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tryEach waits, one node after the other, for the answer that a stream does not exist: it shows
// that the cluster has a leader.
func (c *Cluster) tryEach() error {
	for _, n := range c.Nodes {
		one := &Cluster{t: c.t, url: c.url, opts: c.opts, Nodes: []*Node{n}}
		if err := one.try(func(ctx context.Context, js jetstream.JetStream) error {
			if _, err := js.Stream(ctx, "TELEMETRY"); !errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("%s has no streams, and says %w", n.Name, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) once(ctx context.Context, f func(ctx context.Context, js jetstream.JetStream) error) error {
	nc, err := nats.Connect(c.URLs(), c.opts...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return f(ctx, js)
}

// WaitReady waits until a stream with a replica on every node can be created.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	c.do("the cluster is not ready", func(ctx context.Context, js jetstream.JetStream) error {
		probe := jetstream.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}, Replicas: clusterNodes}
		if _, err := js.CreateOrUpdateStream(ctx, probe); err != nil {
			return err
		}
		return js.DeleteStream(ctx, probe.Name)
	})
}

// Wipe deletes all streams, for the next test.
func (c *Cluster) Wipe() {
	c.t.Helper()
	c.do("the streams cannot be deleted", func(ctx context.Context, js jetstream.JetStream) error {
		names := js.StreamNames(ctx)
		for name := range names.Name() {
			if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return err
			}
		}
		return names.Err()
	})
}

// Leader waits until the stream has a leader.
func (c *Cluster) Leader(stream string) (leader *Node) {
	c.t.Helper()
	c.do("nobody leads "+stream, func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		for _, n := range c.Nodes {
			if info := s.CachedInfo().Cluster; info != nil && n.Name == info.Leader {
				leader = n
				return nil
			}
		}
		return errors.New("it has no leader")
	})
	return leader
}
