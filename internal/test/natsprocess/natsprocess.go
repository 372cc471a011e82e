// Package natsprocess starts real NATS servers as processes.
package natsprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// Build builds the nats-server that a module requires. The flags are those of `make build`, so that
// go uses what it has compiled.
func Build(ctx context.Context, module, dir string) (string, error) {
	binary := filepath.Join(dir, "nats-server")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary,
		"github.com/nats-io/nats-server/v2")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto", "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("nats-server cannot be built: %w\n%s", err, out)
	}
	return binary, nil
}

// Server is one server. A running one must be ended with Kill or Stop. Only [Server.Log] is safe
// for concurrent use.
type Server struct {
	Binary    string
	Name      string   // in the cluster
	Args, Env []string // besides --name, and the environment of this process
	// Wrap precedes the command line, such as "ip", "netns", "exec", NAME.
	Wrap []string

	cmd *exec.Cmd // nil if it is not running
	log logBuffer
}

// Start does not wait until the server is ready.
func (s *Server) Start() error {
	if s.cmd != nil {
		return errors.New("the server is running already")
	}
	args := slices.Concat(s.Wrap, []string{s.Binary}, s.Args, []string{"--name", s.Name})
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("nats-server cannot be started: %w", err)
	}
	s.cmd = cmd
	return nil
}

// Kill waits until the process has ended.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop waits without a limit.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

func (s *Server) end(g syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(g) // it may have ended already
	_ = s.cmd.Wait()            // it was ended by the signal
	s.cmd = nil
}

func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) Reload() error { return s.signal(syscall.SIGHUP) }

func (s *Server) signal(g syscall.Signal) error {
	if s.cmd == nil {
		return errors.New("the server is not running")
	}
	return s.cmd.Process.Signal(g)
}

// Log returns the newest MiB of the output since the first start.
func (s *Server) Log() string { return s.log.String() }

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const logLimit = 1 << 20 // bytes; beyond it, the older half is dropped

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text.Len()+len(p) > logLimit {
		b.text.Next(b.text.Len() / 2)
	}
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
