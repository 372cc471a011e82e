// Package nodeprocess starts the built carstate as a process of its own, for the
// tests, the bench and the torture, which want what people run and not its parts.
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
	"sync"
	"syscall"
	"time"
)

// The listeners, as the program's flags name them.
const (
	Query  = "query-addr"
	Ingest = "ingest-addr"
	MQTT   = "mqtt-addr"
	Admin  = "admin-addr"
)

// Options is how a node is started.
type Options struct {
	Binary string   // the built carstate
	Dir    string   // its data directory
	Flags  []string // besides the directory, the log's format (JSON), no drain, and ports that the system chooses; the last of a flag counts
	Env    []string // its whole environment; nil for that of this process
	// Wrap comes before the program on the command line: "ip", "netns", "exec", NAME.
	Wrap []string
	// Begin starts the process in place of [exec.Cmd.Start]; nil: that does.
	Begin func(*exec.Cmd) error
	// Addresses are what a listener is to listen on, by its flag; for the others
	// the system chooses a port on loopback.
	Addresses map[string]string
	// Heard is called with each line of the log, for who wants more than the
	// newest MiB. It must not keep the line.
	Heard func(line []byte)
}

// Node is a running `carstate serve`. Whoever starts one ends it: with Kill, or
// with Stop.
type Node struct {
	Dir     string
	address map[string]string
	cmd     *exec.Cmd
	log     logBuffer
	heard   func([]byte)
	ended   chan struct{}
	began   time.Time
}

// listenLimit bounds the time until a node listens. A start checks the whole
// store: with 10 million vehicles it takes most of a minute.
const listenLimit = 10 * time.Minute

// Start starts a node and waits until it listens. That it is ready is another
// matter: see [StartReady] and [Node.AwaitReady].
func Start(ctx context.Context, o Options) (*Node, error) {
	args := append([]string{}, o.Wrap...)
	args = append(args, o.Binary, "serve", "--data-dir", o.Dir, "--log-format", "json", "--drain", "0s")
	for _, flag := range []string{Query, Ingest, MQTT, Admin} {
		address := o.Addresses[flag]
		if address == "" {
			address = "127.0.0.1:0"
		}
		args = append(args, "--"+flag, address)
	}
	args = append(args, o.Flags...)
	n := &Node{Dir: o.Dir, heard: o.Heard, address: make(map[string]string), ended: make(chan struct{}), cmd: exec.Command(args[0], args[1:]...)}
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
		err = errors.New("carstate does not listen")
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.Kill()
	return nil, fmt.Errorf("%w; the last it said: %s", err, n.log.lastLine())
}

// StartReady starts a node and waits until it is ready.
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

// EndedError says that a node ended instead of serving.
type EndedError struct {
	Code int    // -1 for a signal
	Last string // the last line it said
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("carstate ended with %d; the last it said: %s", e.Code, e.Last)
}

// listeningLine tells an address, in both formats of the log.
var listeningLine = regexp.MustCompile(`msg"?[:=]"?listening"?[ ,]"?for"?[:=]"?([\w-]+)"?[ ,]"?address"?[:=]"?([^\s",]+)`)

// follow reads the log until the process has ended.
func (n *Node) follow(stderr io.Reader, listening chan<- struct{}) {
	defer close(n.ended)
	eachLine(stderr, func(line []byte) {
		n.log.add(line)
		if n.heard != nil {
			n.heard(line)
		}
		if l := listeningLine.FindSubmatch(line); l != nil {
			n.address[string(l[1])] = string(l[2])
			if string(l[1]) == Admin { // the last one
				close(listening)
			}
		}
	})
	_ = n.cmd.Wait() // how it ended is in ProcessState
}

// lineLimit bounds what is taken of a line of the log, such as one of a stack.
const lineLimit = 64 << 10

// eachLine reads lines until there are no more. Of a line that is longer than the
// limit it takes the beginning: whoever writes is never kept waiting.
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

// Address is where a listener listens, such as 127.0.0.1:4711.
func (n *Node) Address(listener string) string { return n.address[listener] }

// URL is where a listener's HTTP begins.
func (n *Node) URL(listener string) string { return "http://" + n.address[listener] }

// Began is when the process was started.
func (n *Node) Began() time.Time { return n.began }

// Log is what the node has said so far, up to the newest MiB.
func (n *Node) Log() string { return n.log.String() }

// Ended is closed when the process has ended.
func (n *Node) Ended() <-chan struct{} { return n.ended }

// PID is the process's id, or that of what it is wrapped in.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Signal sends a signal to the process.
func (n *Node) Signal(s syscall.Signal) error { return n.cmd.Process.Signal(s) }

// Kill ends the process at once, as kill -9 does, and waits until it is gone.
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill() // an error says that it has ended
	<-n.ended
}

// stopLimit is how long a process may take to end that is asked to.
const stopLimit = time.Minute

// Stop asks the process to end, and waits. It is an error if it ends with
// another code than 0, or not within a minute; then it is killed.
func (n *Node) Stop() error { return n.stop(stopLimit) }

func (n *Node) stop(limit time.Duration) error {
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-n.ended:
	case <-timeout.C:
		n.Kill()
		return fmt.Errorf("carstate did not end within %s after SIGTERM and was killed; the last it said: %s", limit, n.log.lastLine())
	}
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		return &EndedError{Code: code, Last: n.log.lastLine()}
	}
	return nil
}

// ExitCode is the code of a node that has ended; -1 for a signal.
func (n *Node) ExitCode() int { return n.cmd.ProcessState.ExitCode() }

// HasEnded reports whether the node has ended.
func (n *Node) HasEnded() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}

// LastLine is the last that the node said.
func (n *Node) LastLine() string { return n.log.lastLine() }

// logBuffer keeps the newest lines of a log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	last string
}

const logLimit = 1 << 20 // bytes; then the older half goes

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
