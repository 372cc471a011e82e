package nodeprocess

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Resident returns the memory in RAM (RSS), in bytes.
func (n *Node) Resident() (int64, error) { return ResidentOf(n.PID()) }

func (n *Node) CPU() (time.Duration, error) { return CPUOf(n.PID()) }

func ResidentOf(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/PID/status has no VmRSS")
}

func (n *Node) Descriptors() (int, error) {
	// Since Linux 6.2, the size of this directory is their number.
	if d, err := os.Stat(fmt.Sprintf("/proc/%d/fd", n.PID())); err == nil && d.Size() > 0 {
		return int(d.Size()), nil
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID()))
	return len(open), err
}

func CPUOf(pid int) (time.Duration, error) {
	user, system, err := TimesOf(pid)
	return user + system, err
}

func TimesOf(pid int) (user, system time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name of the process, in parentheses, may contain any characters.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, 0, errors.New("/proc/PID/stat has too few fields")
	}
	u, err1 := strconv.ParseInt(fields[11], 10, 64)
	s, err2 := strconv.ParseInt(fields[12], 10, 64)
	const tick = time.Second / 100 // in /proc, on every Linux on which Go runs
	return time.Duration(u) * tick, time.Duration(s) * tick, errors.Join(err1, err2)
}

// Metrics are values by name and labels, as /metrics prints them.
type Metrics map[string]float64

// Metrics reads the node's metrics.
func (n *Node) Metrics(ctx context.Context) (Metrics, error) {
	status, text, err := n.Get(ctx, Admin, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return nil, fmt.Errorf("the metrics cannot be read: %w", err)
	}
	m := make(Metrics)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
				m[line[:i]] = v
			}
		}
	}
	return m, nil
}

func (n *Node) AwaitMetrics(ctx context.Context, limit time.Duration, wanted func(Metrics) bool) (
	m Metrics, err error,
) {
	err = Until(ctx, limit, func(ctx context.Context) (err error) {
		if m, err = n.Metrics(ctx); err == nil && !wanted(m) {
			err = errors.New("the node's metrics are not as expected")
		}
		return err
	})
	return m, err
}
