package sample

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"carstate/bench/report"
	"carstate/internal/access"
	"carstate/internal/admin"
)

// node is a running carstate: the real binary with a data directory of its own,
// as `carstate serve` starts it. Every write is fsynced before it is answered.
type node struct {
	cmd     *exec.Cmd
	address map[string]string // by flag without dashes
	ended   chan struct{}
	key     string // of a source that speaks for all vehicles
	token   string // that may ask for all vehicles
}

// sourceName is the one source of a node.
const sourceName = "bench"

// startNode starts a carstate with an empty data directory called name.
func startNode(ctx context.Context, o report.Options, name string, flags ...string) (*node, error) {
	dir := filepath.Join(o.Dir, name)
	args := []string{"serve", "--data-dir", dir, "--log-format", "json", "--log-level", "info"}
	for _, a := range []string{"query", "ingest", "mqtt", "admin"} {
		args = append(args, "--"+a+"-addr", "127.0.0.1:0")
	}
	n := &node{cmd: exec.Command(o.Binary, append(args, flags...)...), address: make(map[string]string), ended: make(chan struct{})}
	stderr, err := n.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("carstate cannot be started: %w", err)
	}
	listening := make(chan struct{})
	go func() {
		defer close(n.ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			var l struct{ Msg, For, Address string }
			if json.Unmarshal(lines.Bytes(), &l) != nil || l.Msg != "listening" {
				continue
			}
			n.address[l.For] = l.Address
			if l.For == "admin-addr" { // the last one
				close(listening)
			}
		}
		_, _ = io.Copy(io.Discard, stderr)
		_ = n.cmd.Wait() // how it ended shows in what was measured
	}()
	select {
	case <-listening:
	case <-n.ended:
		return nil, errors.New("carstate ended before it listened")
	case <-ctx.Done():
		n.stop()
		return nil, ctx.Err()
	}
	if err := n.prepare(ctx, dir); err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

// prepare waits until the node is ready and gets a source and a token.
func (n *node) prepare(ctx context.Context, dir string) error {
	if err := until(ctx, time.Minute, n.ready); err != nil {
		return err
	}
	key, err := admin.LoadKey(dir)
	if err != nil {
		return err
	}
	c := &admin.Client{URL: n.url("admin-addr"), Key: key}
	source, err := c.AddSource(ctx, sourceName, access.AllVehicles(), time.Time{})
	if err != nil {
		return err
	}
	token, err := c.IssueToken(ctx, access.TokenRequest{
		Developer: "bench", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
	})
	n.key, n.token = source.Key, token.AccessToken
	return err
}

func (n *node) url(listener string) string { return "http://" + n.address[listener] }

// ready reports why the node is not ready, or nil.
func (n *node) ready(context.Context) error {
	resp, err := http.Get(n.url("admin-addr") + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("carstate is not ready: %s", resp.Status)
	}
	return nil
}

// stop ends the node as a supervisor would.
func (n *node) stop() {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.ended:
	case <-time.After(20 * time.Second):
		_ = n.cmd.Process.Kill()
		<-n.ended
	}
}

// metrics are a node's metrics at one time, by name and labels as they are
// printed.
type metrics map[string]float64

func (n *node) metrics() (metrics, error) {
	resp, err := http.Get(n.url("admin-addr") + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	m := make(metrics)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 && lines.Text()[0] != '#' {
			if v, err := strconv.ParseFloat(lines.Text()[i+1:], 64); err == nil {
				m[lines.Text()[:i]] = v
			}
		}
	}
	return m, lines.Err()
}

// cpu is the user and system time that the node has used.
func (n *node) cpu() (time.Duration, error) { return cpuOf(n.cmd.Process.Pid) }

// cpuOf reads the user and system time of a process.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is not what it should be")
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	const ticks = 100 // a second, on every Linux that Go runs on
	return time.Duration(user+system) * time.Second / ticks, errors.Join(err1, err2)
}

// until asks again and again until the answer is nil.
func until(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
