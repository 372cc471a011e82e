// Package natsprocess starts real NATS servers as separate processes. The tests and the torture
// kill, stop and disconnect them. For example:
//
//	binary, err := natsprocess.Build(ctx, "", dir)
//	s := &natsprocess.Server{Binary: binary, Name: "n1", Args: args}
//	err = s.Start()
//	defer s.Kill()
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

// Build builds nats-server into the directory dir and returns the path of the binary. The version
// is the one that a Go module requires. The flags are those of `make build`, so that go uses the
// packages that it has compiled before. module is a directory of that module; "" is
// the current directory.
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

// Server is one server, running or not. The caller must end a running server with Kill or Stop. The
// methods of Server, except [Server.Log], are not safe for concurrent use.
type Server struct {
	Binary    string   // path of the built server
	Name      string   // the server's name in the cluster
	Args, Env []string // Args are added to the flag --name, and Env to the environment of this process
	// Wrap is a command to which the server's command line is appended, such as "ip", "netns",
	// "exec", NAME. If it is empty, the server is started directly.
	Wrap []string

	cmd *exec.Cmd // nil if the server is not running
	log logBuffer
}

// Start starts the process. It does not wait until the server is ready.
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

// Kill kills the process and waits until it has ended. If the server is not running, Kill does
// nothing.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the server with SIGTERM, as an operator would, and waits until it has ended, without a
// time limit. If the server is not running, Stop does nothing.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

func (s *Server) end(g syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(g) // an error means that the process has already ended
	_ = s.cmd.Wait()            // an error means that it was ended by the signal
	s.cmd = nil
}

// Pause suspends the process until Resume is called. To other machines, the server then looks like
// a frozen machine. Pause, Resume and Reload return an error if the server is not running.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume continues a process that Pause has suspended.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

// Reload makes the server read its configuration and certificates again.
func (s *Server) Reload() error { return s.signal(syscall.SIGHUP) }

func (s *Server) signal(g syscall.Signal) error {
	if s.cmd == nil {
		return errors.New("the server is not running")
	}
	return s.cmd.Process.Signal(g)
}

// Log returns the output of the server since its first start, but at most the newest MiB.
func (s *Server) Log() string { return s.log.String() }

// logBuffer holds the newest part of a server's output.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const logLimit = 1 << 20 // bytes; when the log exceeds it, the older half is dropped

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
