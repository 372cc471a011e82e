package row

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"example.org/carstate/bench/must"
)

type Processors = unix.CPUSet

// Parts divides the processors that a process may use into one processor and the others.
type Parts struct {
	All, One, Others Processors
	Number           int // of the processor in One; -1 if there is only one and all sets are equal
}

func Split(pid int) (p Parts) {
	if err := unix.SchedGetaffinity(pid, &p.All); err != nil {
		must.Fail("cannot determine which processors a process may use: %w", err)
	}
	if p.All.Count() < 2 {
		p.One, p.Others, p.Number = p.All, p.All, -1
		return p
	}
	for !p.All.IsSet(p.Number) {
		p.Number++
	}
	p.One.Set(p.Number)
	p.Others = p.All
	p.Others.Clear(p.Number)
	return p
}

// Confine restricts all threads of a process, unless it has ended. The Go runtime adapts within a
// second.
func Confine(pid int, to *Processors) {
	for {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if errors.Is(err, fs.ErrNotExist) {
			return // it has ended; the row detects that
		}
		must.Do(err)
		moved := false
		for _, t := range tasks {
			id := must.Get(strconv.Atoi(t.Name()))
			var now Processors
			if err := unix.SchedGetaffinity(id, &now); err != nil || now == *to {
				continue // ended, or confined already
			}
			moved = true // threads that it started since then inherited the old set
			if err := unix.SchedSetaffinity(id, to); err != nil && !errors.Is(err, unix.ESRCH) {
				must.Fail("cannot confine a process to some processors: %w", err)
			}
		}
		if !moved {
			return
		}
	}
}
