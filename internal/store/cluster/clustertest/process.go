package clustertest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carstate/internal/testkit"
)

// Process is one NATS server that runs as a separate process. A test may change its configuration
// between two starts.
type Process struct {
	*Node
	file string
}

// StartProcess starts a server that ends with the test, and waits until the server serves. The
// parameter config contains neither the server's address nor its store directory.
func StartProcess(t testing.TB, config string) *Process {
	t.Helper()
	testkit.Slow(t, "it starts a NATS server")
	dir := t.TempDir()
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
		t.Cleanup(p.Kill)
		p.Start()
		if p.serves(startTimeout) {
			return p
		}
		p.Kill()
	}
	t.Fatalf("the NATS server does not start:\n%s", p.server.Log())
	return nil
}

// Configure writes the configuration for the next start.
func (p *Process) Configure(config string) { p.must(os.WriteFile(p.file, []byte(config), 0o600)) }

// Said returns how often a text occurs in the logs of all runs.
func (n *Node) Said(text string) int { return strings.Count(n.server.Log(), text) }

// serves waits until a started server reports that it serves, or that it cannot serve.
func (p *Process) serves(limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if p.Said("Server is ready") > 0 {
			return true
		}
		if p.Said("[FTL]")+p.Said("nats-server: ") > 0 {
			return false
		}
	}
	return false
}
