package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"carstate/internal/nodeprocess"
	"carstate/internal/store/cluster/clustertest"
)

// copies is the number of copies of a stream in the cluster.
const copies = 3

// servers are three NATS servers. Each server is a process of its own, and syncs every write before
// it acknowledges the write.
type servers struct {
	*clustertest.Cluster
	monitors [copies]string // addresses of their HTTP monitoring
	pidFiles [copies]string
}

func startServers(t testing.TB) *servers {
	s := new(servers)
	s.Cluster = clustertest.StartClusterWith(t, s.configure, func(addr string) string { return "nats://" + addr })
	return s
}

// configure writes a server's configuration as clustertest does for a test, and adds monitoring.
func (s *servers) configure(t testing.TB, dir string, i int, clients, routes []string) clustertest.Setup {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.monitors[i], s.pidFiles[i] = l.Addr().String(), filepath.Join(dir, "pid")
	l.Close()
	file := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf(`
listen: %q
http: %q
pid_file: %q
jetstream { store_dir: %q, sync_interval: always, max_file_store: 1TB }
cluster { name: bench, listen: %q, routes: [ "nats-route://%s" ] }
`, clients[i], s.monitors[i], s.pidFiles[i], filepath.Join(dir, "store"), routes[i],
		strings.Join(routes, `", "nats-route://`))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return clustertest.Setup{Args: []string{"--config", file}}
}

// work returns the amounts that the servers have used so far, both the total and those of each
// server, and the memory that the servers use now.
func (s *servers) work(ctx context.Context) (counters, error) {
	c := make(counters)
	for i := range copies {
		one, err := s.workOf(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Nodes[i].Name, err)
		}
		for name, v := range one {
			c[name+" of servers"] += v
			c[fmt.Sprint(name, " of server ", i)] = v
		}
	}
	return c, nil
}

// workOf returns the amounts that server i has used so far.
func (s *servers) workOf(ctx context.Context, i int) (counters, error) {
	text, err := os.ReadFile(s.pidFiles[i])
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	cpu, err1 := nodeprocess.CPUOf(pid)
	resident, err2 := nodeprocess.ResidentOf(pid)
	written, err3 := writtenBy(pid)
	req, err4 := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.monitors[i]+"/varz", nil)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var v struct {
		In         float64 `json:"in_bytes"`
		ClientsIn  float64 `json:"in_client_bytes"`
		ClientsOut float64 `json:"out_client_bytes"`
	}
	err = json.NewDecoder(resp.Body).Decode(&v)
	return counters{
		"CPU": cpu.Seconds(), "memory": float64(resident), "bytes written": float64(written), // to the disk
		"bytes from clients": v.ClientsIn, "bytes to clients": v.ClientsOut, "bytes from servers": v.In - v.ClientsIn,
	}, err
}

// writtenBy returns the number of bytes that a process has written to the disk.
func writtenBy(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/%d/io has no write_bytes", pid)
}

// index returns the index of a server among the three.
func (s *servers) index(n *clustertest.Node) int {
	for i := range s.Nodes {
		if s.Nodes[i] == n {
			return i
		}
	}
	panic("a server of another cluster")
}
