package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/test/natsprocess"
	"example.org/carstate/internal/test/nodeprocess"
)

// Servers, and copies of a stream.
const copies = 3

type servers struct {
	dir      string
	all      []*natsprocess.Server
	urls     string
	monitors []string // HTTP monitoring
	nc       *nats.Conn
	js       jetstream.JetStream
}

func (s *servers) start(ctx context.Context, binary string) {
	s.dir = must.Get(os.MkdirTemp("", "carstate-scale-"))
	clients, routes := freeAddresses(), freeAddresses()
	s.monitors, s.urls = freeAddresses(), "nats://"+strings.Join(clients, ",nats://")
	for i := range copies {
		dir := filepath.Join(s.dir, fmt.Sprint(i))
		file := dir + ".conf"
		must.Do(os.WriteFile(file, fmt.Appendf(nil, `
listen: %q
http: %q
pid_file: %q
jetstream { store_dir: %q, sync_interval: always, max_file_store: 1TB }
cluster { name: bench, listen: %q, routes: [ "nats-route://%s" ] }
`, clients[i], s.monitors[i], s.pidFile(i), dir, routes[i], strings.Join(routes, `", "nats-route://`)), 0o600))
		n := &natsprocess.Server{Binary: binary, Name: fmt.Sprint("nats-", i), Args: []string{"--config", file}}
		s.all = append(s.all, n)
		must.Do(n.Start())
	}
	s.nc = must.Get(nats.Connect(s.urls, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond)))
	s.js = must.Get(jetstream.New(s.nc))
	must.Do(nodeprocess.Until(ctx, startLimit, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := s.js.AccountInfo(ctx)
		return err
	}))
}

func (s *servers) end() {
	if s.nc != nil {
		s.nc.Close()
	}
	for _, n := range s.all {
		n.Kill()
	}
	_ = os.RemoveAll(s.dir)
}

// Each server's configuration names the addresses of all.
func freeAddresses() (all []string) {
	for range copies {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

func (s *servers) pidFile(i int) string { return filepath.Join(s.dir, fmt.Sprint(i, ".pid")) }

func (s *servers) stream(ctx context.Context, name string) *jetstream.StreamInfo {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return must.Get(s.js.Stream(ctx, name)).CachedInfo()
}

// CPU in seconds, traffic in bytes; totals or differences.
type counters map[string]float64

func (c counters) since(before counters) counters {
	d := make(counters)
	for name, v := range c {
		d[name] = v - before[name]
	}
	return d
}

func (c counters) all() float64 { return c["CPU of nodes"] + c["CPU of servers"] }

func (s *servers) work(ctx context.Context) counters {
	c := make(counters)
	for i := range copies {
		pid := must.Get(strconv.Atoi(strings.TrimSpace(string(must.Get(os.ReadFile(s.pidFile(i)))))))
		req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.monitors[i]+"/varz", nil))
		resp := must.Get(http.DefaultClient.Do(req))
		var v struct {
			In         float64 `json:"in_bytes"`
			ClientsIn  float64 `json:"in_client_bytes"`
			ClientsOut float64 `json:"out_client_bytes"`
		}
		must.Do(json.NewDecoder(resp.Body).Decode(&v), resp.Body.Close())
		cpu := must.Get(nodeprocess.CPUOf(pid)).Seconds()
		c["CPU of servers"] += cpu
		c[fmt.Sprint("CPU of server ", i)] = cpu
		c["bytes written"] += float64(writtenBy(pid))
		c["bytes from clients"] += v.ClientsIn
		c["bytes to clients"] += v.ClientsOut
		c["bytes from servers"] += v.In - v.ClientsIn
	}
	return c
}

func writtenBy(pid int) int64 {
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return must.Get(strconv.ParseInt(strings.TrimSpace(rest), 10, 64))
		}
	}
	must.Fail("/proc/%d/io has no write_bytes", pid)
	return 0
}
