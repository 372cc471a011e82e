// Package nodeprocess starts carstate as a process, so that tests, bench and torture examine the
// program that users run.
//
//	n, err := nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: binary, Dir: dir}, time.Minute)
//	defer n.Kill()
//	key, err := n.AddSource(ctx, "gateway")
//	status, body, err := n.Post(ctx, key, lines)
package nodeprocess

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The names of the listeners and of their flags.
const (
	Query  = "query-addr"
	Ingest = "ingest-addr"
	MQTT   = "mqtt-addr"
	Admin  = "admin-addr"
)

type Options struct {
	Binary string
	Dir    string
	// Flags follow those of Start (log lines in JSON, no --drain, ports that the system chooses);
	// the last one of a name applies.
	Flags []string
	Env   []string // if nil, that of this process
	// Wrap precedes the command line, such as "ip", "netns", "exec", NAME.
	Wrap []string
	// If nil, [exec.Cmd.Start].
	Begin func(*exec.Cmd) error
	// For listeners without an address, the system chooses a port on loopback.
	Addresses map[string]string
	// Heard, if not nil, receives each log line, and must not keep it; [Node.Log] keeps only the
	// newest MiB.
	Heard func(line []byte)
}

type Node struct {
	Dir     string
	address map[string]string
	cmd     *exec.Cmd
	log     logBuffer
	heard   func([]byte)
	ended   chan struct{}
	began   time.Time
}

// A start checks the whole store, which takes most of a minute with 10 million vehicles.
const listenLimit = 10 * time.Minute

// Start waits until the listeners accept connections, not until the node is ready. If the process
// ends, the error is an [EndedError]. Later, ctx has no effect.
func Start(ctx context.Context, o Options) (*Node, error) {
	args := append(slices.Clone(o.Wrap), o.Binary, "serve", "--data-dir", o.Dir, "--log-format", "json", "--drain", "0s")
	for _, flag := range []string{Query, Ingest, MQTT, Admin} {
		address := o.Addresses[flag]
		if address == "" {
			address = "127.0.0.1:0"
		}
		args = append(args, "--"+flag, address)
	}
	args = append(args, o.Flags...)
	n := &Node{Dir: o.Dir, heard: o.Heard, address: make(map[string]string), ended: make(chan struct{}),
		cmd: exec.Command(args[0], args[1:]...)}
	n.cmd.Env = o.Env
	stderr, err := n.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if o.Begin == nil {
		o.Begin = (*exec.Cmd).Start
	}
	n.began = time.Now()
	if err := o.Begin(n.cmd); err != nil {
		return nil, fmt.Errorf("carstate cannot be started: %w", err)
	}
	listening := make(chan struct{})
	go n.follow(stderr, listening)
	timeout := time.NewTimer(listenLimit)
	defer timeout.Stop()
	select {
	case <-listening:
		return n, nil
	case <-n.ended:
		return nil, &EndedError{Code: n.cmd.ProcessState.ExitCode(), Last: n.log.lastLine()}
	case <-timeout.C:
		err = errors.New("carstate is not listening")
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.Kill()
	return nil, fmt.Errorf("%w; last log line: %s", err, n.log.lastLine())
}

// StartReady waits until the node is ready, at most for limit after it listens.
func StartReady(ctx context.Context, o Options, limit time.Duration) (*Node, error) {
	n, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := n.AwaitReady(ctx, limit); err != nil {
		n.Kill()
		return nil, err
	}
	return n, nil
}

type EndedError struct {
	Code int    // -1 if a signal ended it
	Last string // of its log
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("carstate ended with %d; last log line: %s", e.Code, e.Last)
}

var listeningLine = regexp.MustCompile(
	`msg"?[:=]"?listening"?[ ,]"?for"?[:=]"?([\w-]+)"?[ ,]"?address"?[:=]"?([^\s",]+)`)

// follow closes listening once all listeners accept connections.
func (n *Node) follow(stderr io.Reader, listening chan<- struct{}) {
	defer close(n.ended)
	eachLine(stderr, func(line []byte) {
		n.log.add(line)
		if n.heard != nil {
			n.heard(line)
		}
		if l := listeningLine.FindSubmatch(line); l != nil {
			n.address[string(l[1])] = string(l[2])
			if string(l[1]) == Admin { // the last listener to start
				close(listening)
			}
		}
	})
	_ = n.cmd.Wait() // the result is in ProcessState
}

// lineLimit is in bytes. The rest of a line, as of a stack trace, is read and dropped, so that the
// process never blocks.
const lineLimit = 64 << 10

func eachLine(r io.Reader, take func(line []byte)) {
	lines := bufio.NewReaderSize(r, lineLimit)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			take(bytes.TrimSuffix(line, []byte("\n")))
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

func (n *Node) Address(listener string) string { return n.address[listener] }

func (n *Node) URL(listener string) string { return "http://" + n.address[listener] }

func (n *Node) Began() time.Time { return n.began }

// Log returns the newest MiB of the log.
func (n *Node) Log() string { return n.log.String() }

func (n *Node) Ended() <-chan struct{} { return n.ended }

// PID is that of the command in Options.Wrap if set.
func (n *Node) PID() int { return n.cmd.Process.Pid }

func (n *Node) Signal(s syscall.Signal) error { return n.cmd.Process.Signal(s) }

// Kill waits until the process has ended.
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill() // it may have ended already
	<-n.ended
}

const stopLimit = time.Minute

// Stop ends the process with SIGTERM, or kills it after a minute. An exit code other than 0 is an
// error.
func (n *Node) Stop() error {
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timeout := time.NewTimer(stopLimit)
	defer timeout.Stop()
	select {
	case <-n.ended:
	case <-timeout.C:
		n.Kill()
		return fmt.Errorf("carstate did not end within %s after SIGTERM and was killed; last log line: %s",
			stopLimit, n.log.lastLine())
	}
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		return &EndedError{Code: code, Last: n.log.lastLine()}
	}
	return nil
}

// ExitCode is -1 if a signal ended the node.
func (n *Node) ExitCode() int { return n.cmd.ProcessState.ExitCode() }

func (n *Node) HasEnded() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}

func (n *Node) LastLine() string { return n.log.lastLine() }

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	last string
}

const logLimit = 1 << 20 // bytes; beyond it, the older half is dropped

func (b *logBuffer) add(line []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text.Len()+len(line) > logLimit {
		b.text.Next(b.text.Len() / 2)
	}
	b.text.Write(line)
	b.text.WriteByte('\n')
	b.last = string(line)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) lastLine() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}
