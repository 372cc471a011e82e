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
	"testing"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/stream/streamtest"
)

// copies is how many copies of a stream the cluster keeps.
const copies = 3

// servers are three NATS servers, each a process of its own, with every write
// synced before it is answered.
type servers struct {
	*streamtest.Cluster
	monitors [copies]string // where each answers for what it has done
	pidFiles [copies]string
}

func startServers(t testing.TB) *servers {
	s := new(servers)
	s.Cluster = streamtest.StartClusterWith(t, s.configure, func(addr string) string { return "nats://" + addr })
	return s
}

// configure is what streamtest does for a test, with monitoring.
func (s *servers) configure(t testing.TB, dir string, i int, clients, routes []string) streamtest.Setup {
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
`, clients[i], s.monitors[i], s.pidFiles[i], filepath.Join(dir, "store"), routes[i], strings.Join(routes, `", "nats-route://`))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return streamtest.Setup{Args: []string{"--config", file}}
}

// work is what a server has done so far.
type work struct {
	cpu                             time.Duration
	resident                        int64 // bytes, now
	written                         int64 // bytes that went to the disk
	clientsIn, clientsOut, routesIn int64 // bytes over the network
}

func (w work) minus(o work) work {
	return work{w.cpu - o.cpu, w.resident, w.written - o.written, w.clientsIn - o.clientsIn, w.clientsOut - o.clientsOut, w.routesIn - o.routesIn}
}

// all adds up what the servers did.
func all(each [copies]work) (w work) {
	for _, o := range each {
		w.cpu += o.cpu
		w.resident += o.resident
		w.written += o.written
		w.clientsIn += o.clientsIn
		w.clientsOut += o.clientsOut
		w.routesIn += o.routesIn
	}
	return w
}

// work asks every server what it has done.
func (s *servers) work(ctx context.Context) (each [copies]work, err error) {
	for i := range each {
		if each[i], err = s.workOf(ctx, i); err != nil {
			return each, fmt.Errorf("%s: %w", s.Nodes[i].Name, err)
		}
	}
	return each, nil
}

func (s *servers) workOf(ctx context.Context, i int) (w work, err error) {
	text, err := os.ReadFile(s.pidFiles[i])
	if err != nil {
		return w, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return w, err
	}
	if w.cpu, err = nodeprocess.CPUOf(pid); err != nil {
		return w, err
	}
	if w.resident, err = nodeprocess.ResidentOf(pid); err != nil {
		return w, err
	}
	if w.written, err = writtenBy(pid); err != nil {
		return w, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.monitors[i]+"/varz", nil)
	if err != nil {
		return w, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return w, err
	}
	defer resp.Body.Close()
	var v struct {
		In         int64 `json:"in_bytes"`
		ClientsIn  int64 `json:"in_client_bytes"`
		ClientsOut int64 `json:"out_client_bytes"`
	}
	err = json.NewDecoder(resp.Body).Decode(&v)
	w.clientsIn, w.clientsOut, w.routesIn = v.ClientsIn, v.ClientsOut, v.In-v.ClientsIn
	return w, err
}

// writtenBy is how many bytes a process has had written to the disk.
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

// index is the place of a server among the three.
func (s *servers) index(n *streamtest.Node) int {
	for i := range s.Nodes {
		if s.Nodes[i] == n {
			return i
		}
	}
	panic("a server of another cluster")
}
