package clustertest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/test/testkit"
)

type Process struct {
	*Node
	file string
}

// config must not set the server's address or its store directory.
func StartProcess(t testing.TB, config string) *Process {
	t.Helper()
	p := launch(t, config)
	t.Cleanup(func() {
		p.Kill()
		p.remove()
	})
	return p
}

// The caller must end the server of launch.
func launch(t testing.TB, config string) *Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "carstate-nats-")
	testkit.NoError(t, err)
	p := &Process{file: filepath.Join(dir, "nats.conf")}
	for range startAttempts {
		addr := freeAddrs(t)[0]
		host, port, err := net.SplitHostPort(addr)
		testkit.NoError(t, err)
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
	t.Fatalf("the NATS server: got no start, want one:\n%s", p.server.Log())
	return nil
}

func (p *Process) remove() { os.RemoveAll(filepath.Dir(p.file)) }

func (p *Process) Configure(config string) { p.must(os.WriteFile(p.file, []byte(config), 0o600)) }

func (p *Process) URL() string { return "nats://" + p.Addr }

func (p *Process) Start() {
	p.t.Helper()
	if !p.start() {
		p.t.Fatalf("the NATS server: got no start, want one:\n%s", p.server.Log())
	}
}

// start returns false if the server reports that it cannot serve, or nothing within startTimeout.
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

// Said counts a text in the output since the first start.
func (n *Node) Said(text string) int { return strings.Count(n.server.Log(), text) }
