// Package nodeprocess starts the program carstate as a separate process. The tests, the bench and
// the torture use it, so that they examine the program that users run. For example:
//
//	o := nodeprocess.Options{Binary: binary, Dir: dir}
//	n, err := nodeprocess.StartReady(ctx, o, time.Minute)
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

// The names of the listeners, which are also the names of their flags.
const (
	Query  = "query-addr"
	Ingest = "ingest-addr"
	MQTT   = "mqtt-addr"
	Admin  = "admin-addr"
)

// Options configures a node.
type Options struct {
	Binary string // the built carstate
	Dir    string // the data directory
	// Flags are added after the flags that Start sets: the data directory, log lines in JSON, no
	// delay (--drain) between SIGTERM and the end, and ports that the system chooses. If a flag
	// appears twice, the last one applies.
	Flags []string
	Env   []string // the whole environment; if nil, the environment of this process
	// Wrap is a command to which the node's command line is appended, such as "ip", "netns",
	// "exec", NAME. If it is empty, the node is started directly.
	Wrap []string
	// Begin starts the process. If nil, [exec.Cmd.Start] is used.
	Begin func(*exec.Cmd) error
	// Addresses maps the name of a listener to the address on which it listens. For a listener
	// that is not in Addresses, the system chooses a port on the loopback interface.
	Addresses map[string]string
	// Heard is called with each log line. It is for callers that need more than [Node.Log], which
	// keeps only the newest MiB. It must not keep the slice line after it returns. If nil, it is
	// not called.
	Heard func(line []byte)
}

// Node is a process of `carstate serve`. The caller must end it with Kill or Stop.
type Node struct {
	Dir     string
	address map[string]string
	cmd     *exec.Cmd
	log     logBuffer
	heard   func([]byte)
	ended   chan struct{}
	began   time.Time
}

// listenLimit is the maximum time from the start of a node until it listens. A start checks the
// whole store, which takes most of a minute with 10 million vehicles.
const listenLimit = 10 * time.Minute

// Start starts a node and waits until its listeners accept connections. The node need not be ready
// when Start returns; [StartReady] and [Node.AwaitReady] wait for that. If the process ends before,
// Start returns an [EndedError]. If ctx ends before, or if listenLimit passes, Start kills the
// process and returns an error. Later, ctx has no effect on the node.
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

// StartReady starts a node and waits until it is ready, but after it listens not longer than limit.
// If the node does not become ready, StartReady kills it and returns an error.
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

// EndedError reports that the process of a node ended unexpectedly.
type EndedError struct {
	Code int    // the exit code; -1 if a signal ended the process
	Last string // the last line of its log
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("carstate ended with %d; last log line: %s", e.Code, e.Last)
}

// listeningLine matches the log line that a node writes for each listener once it listens. The line
// has the listener's name and address, in the text format or the JSON format.
var listeningLine = regexp.MustCompile(
	`msg"?[:=]"?listening"?[ ,]"?for"?[:=]"?([\w-]+)"?[ ,]"?address"?[:=]"?([^\s",]+)`)

// follow reads the node's log from stderr until the process has ended. It closes the channel
// listening once all listeners of the node accept connections.
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

// lineLimit is the maximum length, in bytes, to which log lines are read. The rest of a longer
// line, such as one of a stack trace, is dropped.
const lineLimit = 64 << 10

// eachLine calls take with each line of r. It drops the part of a line beyond lineLimit, but still
// reads that part, so that the process that writes the lines never blocks.
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

// Address returns the address on which a listener listens, such as 127.0.0.1:4711, or "" if the
// node has no such listener.
func (n *Node) Address(listener string) string { return n.address[listener] }

// URL returns the base URL of a listener.
func (n *Node) URL(listener string) string { return "http://" + n.address[listener] }

// Began returns the time at which the process was started.
func (n *Node) Began() time.Time { return n.began }

// Log returns the newest part of the node's log, at most 1 MiB.
func (n *Node) Log() string { return n.log.String() }

// Ended returns a channel that is closed when the process has ended.
func (n *Node) Ended() <-chan struct{} { return n.ended }

// PID returns the process ID of the node or, if Options.Wrap is set, of the command in Wrap.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Signal sends a signal to the process.
func (n *Node) Signal(s syscall.Signal) error { return n.cmd.Process.Signal(s) }

// Kill kills the process and waits until it has ended.
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill() // an error means that the process has already ended
	<-n.ended
}

// stopLimit is how long a process may take to end after SIGTERM.
const stopLimit = time.Minute

// Stop ends the process with SIGTERM and waits until it has ended. It returns an error if the exit
// code is not 0. If the process does not end within a minute, Stop kills it and returns an error.
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

// ExitCode returns the exit code of a node that has ended, or -1 if a signal ended it.
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

// LastLine returns the last line of the log.
func (n *Node) LastLine() string { return n.log.lastLine() }

// logBuffer holds the newest lines of a node's log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	last string
}

const logLimit = 1 << 20 // bytes; when the log exceeds it, the older half is dropped

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
