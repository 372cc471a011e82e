package nodes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/natsprocess"
	"example.org/carstate/internal/test/nodeprocess"
)

const servers = 3

const (
	clientPort = 4222
	routePort  = 6222
)

type natsCluster struct {
	net     *network
	servers []*natsprocess.Server
	nc      *nats.Conn
	js      jetstream.JetStream
}

func (c *natsCluster) start(ctx context.Context, dir string) {
	binary := must.Get(natsprocess.Build(ctx, "..", dir))
	var routes []string
	for i := range servers {
		routes = append(routes, fmt.Sprintf("nats-route://%s:%d", c.net.address(i), routePort))
	}
	for i := range servers {
		name := fmt.Sprintf("nats-%d", i+1)
		file := filepath.Join(dir, name+".conf")
		must.Do(os.WriteFile(file, fmt.Appendf(nil, `
listen: "%[1]s:%[2]d"
jetstream { store_dir: %[3]q, sync_interval: always, max_file_store: 1PB }
cluster { name: torture, listen: "%[1]s:%[4]d", routes: [ "%[5]s" ] }
`, c.net.address(i), clientPort, filepath.Join(dir, name), routePort, strings.Join(routes, `", "`)), 0o600))
		s := &natsprocess.Server{Binary: binary, Name: name, Args: []string{"--config", file},
			Wrap: []string{"ip", "netns", "exec", c.net.name(i)}}
		c.servers = append(c.servers, s)
		must.Do(s.Start())
	}
	c.nc = must.Get(nats.Connect(c.urls(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2)))
	c.js = must.Get(jetstream.New(c.nc))
}

func (c *natsCluster) urls() string {
	var urls []string
	for i := range servers {
		urls = append(urls, fmt.Sprintf("nats://%s:%d", c.net.address(i), clientPort))
	}
	return strings.Join(urls, ",")
}

var streams = []string{codec.Telemetry, codec.Telemetry + "-1", codec.States, codec.Tokens, codec.Sources, codec.Audit, codec.Roads}

func (c *natsCluster) look(ctx context.Context, name string) (*jetstream.ClusterInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	info := s.CachedInfo().Cluster
	if info == nil || info.Leader == "" {
		return nil, fmt.Errorf("%s has no leader", name)
	}
	return info, nil
}

// While a server lags behind (not current), a further disturbance would disable two.
func (c *natsCluster) led(ctx context.Context, current bool) error {
	for _, name := range streams {
		info, err := c.look(ctx, name)
		if err != nil {
			return fmt.Errorf("the leader of %s does not answer: %w", name, err)
		}
		for _, r := range info.Replicas {
			if current && (!r.Current || r.Offline) {
				return fmt.Errorf("the copy of %s on %s is not current", name, r.Name)
			}
		}
	}
	return nil
}

func (c *natsCluster) leader(ctx context.Context, name string) (server int) {
	must.Do(nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) error {
		info, err := c.look(ctx, name)
		if err == nil {
			server = slices.IndexFunc(c.servers, func(s *natsprocess.Server) bool { return s.Name == info.Leader })
		}
		return err
	}))
	return server
}

func (c *natsCluster) close() {
	if c.nc != nil {
		c.nc.Close()
	}
	for _, s := range c.servers {
		s.Kill()
	}
}

// network is a virtual switch with a cable to each NATS server, in a namespace of its own. Packets
// on a disconnected cable are lost without an error.
type network struct {
	tag    string
	subnet string // "198.18.7."
}

// Reserved for benchmarks and not routed (RFC 2544).
func newNetwork() *network {
	return &network{tag: fmt.Sprintf("cst%d", os.Getpid()), subnet: fmt.Sprintf("198.18.%d.", os.Getpid()%256)}
}

// The link of this machine vanishes with its other end's namespace.
func (n *network) open(ctx context.Context) {
	var script strings.Builder
	fmt.Fprintf(&script, `
ip netns add %[1]shub
ip -n %[1]shub link add switch type bridge
ip -n %[1]shub link set switch up
ip link add %[1]s type veth peer name host netns %[1]shub
ip -n %[1]shub link set host master switch up
ip addr add %[2]s1/24 dev %[1]s
ip link set %[1]s up`, n.tag, n.subnet)
	for i := range servers {
		fmt.Fprintf(&script, `
ip netns add %[1]s
ip -n %[2]shub link add s%[3]d type veth peer name cable netns %[1]s
ip -n %[2]shub link set s%[3]d master switch up
ip -n %[1]s addr add %[4]s/24 dev cable
ip -n %[1]s link set cable up
ip -n %[1]s link set lo up`, n.name(i), n.tag, i, n.address(i))
	}
	must.Do(shell(ctx, script.String()))
}

func (n *network) name(server int) string    { return fmt.Sprintf("%ss%d", n.tag, server) }
func (n *network) address(server int) string { return fmt.Sprintf("%s%d", n.subnet, 10+server) }

func (n *network) cable(server int, to string) error { return n.port(fmt.Sprintf("s%d", server), to) }

func (n *network) nodes(to string) error { return n.port("host", to) }

func (n *network) port(name, to string) error {
	return shell(context.Background(), "ip -n "+n.tag+"hub link set "+name+" "+to)
}

func (n *network) close() error {
	return shell(context.Background(), "for name in $(ip netns list | grep -oE '^"+n.tag+"(hub|s[0-9])'); do ip netns del $name; done")
}

func shell(ctx context.Context, script string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-ec", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s: network namespaces need root, and the package iproute2", script, err,
			strings.TrimSpace(string(out)))
	}
	return nil
}
