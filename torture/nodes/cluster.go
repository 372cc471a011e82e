package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/bench/must"
	"carstate/internal/natsprocess"
	"carstate/internal/nodeprocess"
	"carstate/internal/store/codec"
)

// servers is the smallest number of NATS servers that survives the loss of one.
const servers = 3

// The ports of every server. Each server has its own address.
const (
	clientPort = 4222
	routePort  = 6222
)

// natsCluster holds the NATS servers, and a connection that observes their state.
type natsCluster struct {
	net     *network
	servers []*natsprocess.Server
	nc      *nats.Conn
	js      jetstream.JetStream
}

// start starts the servers. Every server has a copy of all data, and every write is synced.
func (c *natsCluster) start(ctx context.Context, dir string) {
	binary := must.Get(natsprocess.Build(ctx, "..", dir))
	var routes []string
	for i := range servers {
		routes = append(routes, fmt.Sprintf("nats-route://%s:%d", c.net.address(i), routePort))
	}
	for i := range servers {
		name := fmt.Sprintf("nats-%d", i+1)
		file := filepath.Join(dir, name+".conf")
		text := fmt.Sprintf(`
listen: "%s:%d"
jetstream { store_dir: %q, sync_interval: always }
cluster { name: torture, listen: "%s:%d", routes: [ %q ] }
`, c.net.address(i), clientPort, filepath.Join(dir, name), c.net.address(i), routePort, strings.Join(routes, `", "`))
		text = strings.ReplaceAll(text, `\"`, `"`)
		must.Do(os.WriteFile(file, []byte(text), 0o600))
		s := natsprocess.New(natsprocess.Setup{Binary: binary, Name: name, Args: []string{"--config", file},
			Wrap: c.net.inside(i)})
		c.servers = append(c.servers, s)
		must.Do(s.Start())
	}
	c.nc = must.Get(nats.Connect(c.urls(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2)))
	c.js = must.Get(jetstream.New(c.nc))
	must.Do(nodeprocess.Until(ctx, time.Minute, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := c.js.AccountInfo(ctx)
		return err
	}))
}

// urls returns the servers' URLs in the format of the flag --nats.
func (c *natsCluster) urls() string {
	var urls []string
	for i := range servers {
		urls = append(urls, fmt.Sprintf("nats://%s:%d", c.net.address(i), clientPort))
	}
	return strings.Join(urls, ",")
}

// streams are the streams of carstate.
var streams = []string{codec.Telemetry, codec.States, codec.Tokens, codec.Sources, codec.Audit, codec.Roads}

// look returns the cluster's state of a stream.
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

// led returns an error unless every stream has a leader that answers.
func (c *natsCluster) led(ctx context.Context) error {
	return c.each(ctx, func(string, *jetstream.ClusterInfo) error { return nil })
}

// whole returns an error while a NATS server is missing or its data lags behind. If another server
// were disabled in that condition, the cluster would have lost two servers.
func (c *natsCluster) whole(ctx context.Context) error {
	return c.each(ctx, func(name string, info *jetstream.ClusterInfo) error {
		for _, r := range info.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("the copy of %s on %s is not current", name, r.Name)
			}
		}
		return nil
	})
}

func (c *natsCluster) each(ctx context.Context, check func(name string, info *jetstream.ClusterInfo) error) error {
	for _, name := range streams {
		info, err := c.look(ctx, name)
		if err != nil {
			return fmt.Errorf("the leader of %s does not answer: %w", name, err)
		}
		if err := check(name, info); err != nil {
			return err
		}
	}
	return nil
}

// leader waits until a stream has a leader, and returns its server.
func (c *natsCluster) leader(ctx context.Context, name string) (server int) {
	must.Do(nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) error {
		info, err := c.look(ctx, name)
		if err == nil {
			server = slices.IndexFunc(c.servers, func(s *natsprocess.Server) bool { return s.Name() == info.Leader })
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
