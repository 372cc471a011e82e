package clustertest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Process is one NATS server that runs as a separate process. A test may change its configuration
// between two starts.
type Process struct {
	*Node
	file string
}

// StartProcess starts one server, which is killed when the test ends, and waits until it serves.
// config must not set the server's address or its store directory, because StartProcess sets them.
func StartProcess(t testing.TB, config string) *Process {
	t.Helper()
	p := launch(t, config)
	t.Cleanup(func() {
		p.Kill()
		p.remove()
	})
	return p
}

// launch is StartProcess without an end of the server.
func launch(t testing.TB, config string) *Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "carstate-nats-")
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{file: filepath.Join(dir, "nats.conf")}
	for range startAttempts {
		addr := freeAddrs(t)[0]
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		p.Node = newNode(t, "nats-1", addr, Setup{Args: []string{
			"--config", p.file, "--addr", host, "--port", port, "--store_dir", filepath.Join(dir, "store"),
		}})
		p.Configure(config)
		if p.start() {
			return p
		}
		p.Kill()
	}
	p.remove()
	t.Fatalf("the NATS server does not start:\n%s", p.server.Log())
	return nil
}

// remove removes the files of a server that has ended.
func (p *Process) remove() { os.RemoveAll(filepath.Dir(p.file)) }

// Configure writes the configuration for the next start.
func (p *Process) Configure(config string) { p.must(os.WriteFile(p.file, []byte(config), 0o600)) }

// URL returns the address of the server, which is the same after each start.
func (p *Process) URL() string { return "nats://" + p.Addr }

// Start starts the server, and waits until it serves.
func (p *Process) Start() {
	p.t.Helper()
	if !p.start() {
		p.t.Fatalf("the NATS server does not start:\n%s", p.server.Log())
	}
}

// start starts the server and waits until the server reports that it serves. It returns false if
// the server reports that it cannot serve, or reports nothing within startTimeout.
func (p *Process) start() bool {
	ready, failed := p.Said(serving), p.failures()
	p.Node.Start()
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if p.Said(serving) > ready {
			return true
		}
		if p.failures() > failed {
			return false
		}
	}
	return false
}

const serving = "Server is ready"

func (p *Process) failures() int { return p.Said("[FTL]") + p.Said("nats-server: ") }

// Said returns how often a text occurs in the output of the server since its first start.
func (n *Node) Said(text string) int { return strings.Count(n.server.Log(), text) }
