// Package natsprocess starts real NATS servers as processes of their own, for the
// tests and the torture, which kill, stop and cut them off.
package natsprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// Build builds the server of our own dependency into a directory and returns its
// path. module is a directory of the module that depends on it; "" is the present
// one.
func Build(ctx context.Context, module, dir string) (string, error) {
	binary := filepath.Join(dir, "nats-server")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/nats-io/nats-server/v2")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("nats-server cannot be built: %w\n%s", err, out)
	}
	return binary, nil
}

// Setup is how a server is started.
type Setup struct {
	Binary    string // the built server
	Name      string
	Args, Env []string // besides the name and this process's environment
	// Wrap comes before the program on the command line: "ip", "netns", "exec", NAME.
	Wrap []string
}

// Server is one server, running or not. Whoever starts it ends it. Not safe for
// concurrent use, but for [Server.Log].
type Server struct {
	setup Setup
	cmd   *exec.Cmd // nil while it does not run
	log   logBuffer
}

// New returns a server that does not run yet.
func New(s Setup) *Server { return &Server{setup: s} }

// Start starts the server, which need not serve yet when it returns.
func (s *Server) Start() error {
	if s.cmd != nil {
		return errors.New("the server runs")
	}
	args := append(append([]string{}, s.setup.Wrap...), s.setup.Binary)
	args = append(append(args, s.setup.Args...), "--name", s.setup.Name)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), s.setup.Env...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("nats-server cannot be started: %w", err)
	}
	s.cmd = cmd
	return nil
}

// Kill ends the server at once, as a crash does, and waits until it is gone.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the server as an operator does.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

func (s *Server) end(g syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(g) // an error says that it has ended
	_ = s.cmd.Wait()            // it ends by a signal
	s.cmd = nil
}

// Pause stops the process until Resume, as a machine that is frozen.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

// Reload lets the server read its configuration and certificates again.
func (s *Server) Reload() error { return s.signal(syscall.SIGHUP) }

func (s *Server) signal(g syscall.Signal) error {
	if s.cmd == nil {
		return errors.New("the server does not run")
	}
	return s.cmd.Process.Signal(g)
}

// Name is the server's name, by which the cluster knows it.
func (s *Server) Name() string { return s.setup.Name }

// Log is what the server has said so far, of all its runs, up to the newest MiB.
func (s *Server) Log() string { return s.log.String() }

// logBuffer keeps the newest part of a log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const logLimit = 1 << 20 // bytes; then the older half goes

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
