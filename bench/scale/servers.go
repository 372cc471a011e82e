package scale

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/store/cluster/clustertest"
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
func (s *servers) work(ctx context.Context) counters {
	c := make(counters)
	for i := range copies {
		for name, v := range s.workOf(ctx, i) {
			c[name+" of servers"] += v
			c[fmt.Sprint(name, " of server ", i)] = v
		}
	}
	return c
}

// workOf returns the amounts that server i has used so far.
func (s *servers) workOf(ctx context.Context, i int) counters {
	text := must.Get(os.ReadFile(s.pidFiles[i]))
	pid := must.Get(strconv.Atoi(strings.TrimSpace(string(text))))
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.monitors[i]+"/varz", nil))
	resp := must.Get(http.DefaultClient.Do(req))
	defer resp.Body.Close()
	var v struct {
		In         float64 `json:"in_bytes"`
		ClientsIn  float64 `json:"in_client_bytes"`
		ClientsOut float64 `json:"out_client_bytes"`
	}
	must.Do(json.NewDecoder(resp.Body).Decode(&v))
	return counters{
		"CPU": must.Get(nodeprocess.CPUOf(pid)).Seconds(), "memory": float64(must.Get(nodeprocess.ResidentOf(pid))),
		"bytes written":      float64(writtenBy(pid)), // to the disk
		"bytes from clients": v.ClientsIn, "bytes to clients": v.ClientsOut, "bytes from servers": v.In - v.ClientsIn,
	}
}

// counters holds amounts by name, either the total used so far or the amount used between two
// times. CPU is in seconds, memory and traffic in bytes.
type counters map[string]float64

// since returns the amounts that were used after before was read.
func (c counters) since(before counters) counters {
	d := make(counters)
	for name, v := range c {
		d[name] = v - before[name]
	}
	return d
}

// all returns the CPU time of nodes and servers together.
func (c counters) all() float64 { return c["CPU of nodes"] + c["CPU of servers"] }

// inUse returns the percentage of the machine's processor time that was in use, and the percentage
// that processes other than the nodes, the servers and this process used.
func (c counters) inUse() (percent, others float64) {
	percent = 100 * c["busy ticks"] / c["ticks"]
	ours := (c.all() + c["CPU of this process"]) / c["took"] / float64(runtime.NumCPU())
	return percent, max(0, percent-100*ours)
}

// machineCPU adds to c the time that this machine's processors have worked since boot, in ticks of
// the kernel.
func machineCPU(c counters) {
	text := must.Get(os.ReadFile("/proc/stat"))
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		must.Fail("/proc/stat begins with %q", line)
	}
	for i, field := range fields[1:9] { // without guest times, which are part of the first two
		ticks := must.Get(strconv.ParseFloat(field, 64))
		c["ticks"] += ticks
		if i != 3 && i != 4 { // idle, and idle while waiting for a disk
			c["busy ticks"] += ticks
		}
	}
}

// writtenBy returns the number of bytes that a process has written to the disk.
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

// index returns the index of a server among the three.
func (s *servers) index(n *clustertest.Node) int { return slices.Index(s.Nodes, n) }

// outside implements [testing.TB] outside a test, because the functions of package clustertest,
// which start the servers, take a test. A failure ends the measurement as it would end a test.
type outside struct {
	// TB is nil. It only provides the methods that are never called here: without it, a type
	// outside the package testing cannot implement [testing.TB].
	testing.TB
	logf     func(format string, args ...any)
	cleanups []func()
	failed   bool
}

func newOutside(logf func(format string, args ...any)) *outside {
	testing.Init()                  // clustertest reads a flag of package testing
	_ = flag.CommandLine.Parse(nil) // without arguments
	return &outside{logf: logf}
}

func (o *outside) cleanUp() {
	for _, f := range slices.Backward(o.cleanups) {
		f()
	}
}

func (o *outside) Helper() {}

func (o *outside) Cleanup(f func()) { o.cleanups = append(o.cleanups, f) }

func (o *outside) Failed() bool { return o.failed }

func (o *outside) Logf(format string, args ...any) { o.logf(format, args...) }

func (o *outside) Fatal(args ...any) {
	o.failed = true
	must.Fail("%s", fmt.Sprint(args...))
}

func (o *outside) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }
