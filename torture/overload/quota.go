package overload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// quota is a control group of processes that share a part of one core.
type quota struct {
	dir   string
	cores float64 // part of one core
}

// period is the interval at which the kernel grants CPU time to the group, in microseconds. It is
// the same as in a container. It must not be much shorter, because the kernel may notice up to 4 ms
// late, at its next tick, that the group has used up its time. It then deducts the excess from the
// next period, and in a short period, the excess would be most of the time.
const period = 100_000

// newQuota creates a control group of processes that may use the given thousandths of a core.
func newQuota(name string, thousandths int) (*quota, error) {
	allowed := strconv.Itoa(period * thousandths / 1000)
	type file struct{ name, text string }
	for _, kind := range []struct {
		root, marker string
		files        []file
	}{
		{"/sys/fs/cgroup", "cgroup.controllers", []file{{"cpu.max", allowed + " " + strconv.Itoa(period)}}},
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", []file{{"cpu.cfs_period_us", strconv.Itoa(period)},
			{"cpu.cfs_quota_us", allowed}}},
	} {
		if _, err := os.Stat(filepath.Join(kind.root, kind.marker)); err != nil {
			continue
		}
		// In version 2 of control groups, children have a controller only if the parent
		// enables it.
		_ = os.WriteFile(filepath.Join(kind.root, "cgroup.subtree_control"), []byte("+cpu"), 0o644)
		q := &quota{filepath.Join(kind.root, name), float64(thousandths) / 1000}
		err := os.Mkdir(q.dir, 0o755)
		for _, f := range kind.files {
			if err == nil {
				err = os.WriteFile(filepath.Join(q.dir, f.name), []byte(f.text), 0o644)
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the CPU time of a process cannot be limited: run it as root, with a writable "+
				"/sys/fs/cgroup: %w", err), q.remove())
		}
		return q, nil
	}
	return nil, errors.New("the CPU time of a process cannot be limited: /sys/fs/cgroup has no controller of the CPU")
}

// needs returns an error if this machine cannot enforce a quota.
func needs() error {
	q, err := newQuota("carstate-torture-probe-"+strconv.Itoa(os.Getpid()), 500)
	if err != nil {
		return err
	}
	return q.remove()
}

// add moves a process into the group, with all its threads.
func (q *quota) add(pid int) error {
	return os.WriteFile(filepath.Join(q.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// remove removes the control group. Its processes must have ended.
func (q *quota) remove() error {
	if err := os.Remove(q.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
