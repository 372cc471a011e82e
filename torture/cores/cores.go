// Package cores gives processes of a row processors of their own.
package cores

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Set are processors.
type Set = unix.CPUSet

// Parts are the processors that a process may use, taken apart.
type Parts struct {
	All, One, Others Set
	Number           int // of the one; -1 where there is but one, which all are then
}

// Split takes the processors that a process may use apart.
func Split(pid int) (p Parts, err error) {
	if err := unix.SchedGetaffinity(pid, &p.All); err != nil {
		return p, fmt.Errorf("which processors a process may use cannot be told: %w", err)
	}
	if p.All.Count() < 2 {
		p.One, p.Others, p.Number = p.All, p.All, -1
		return p, nil
	}
	for !p.All.IsSet(p.Number) {
		p.Number++
	}
	p.One.Set(p.Number)
	p.Others = p.All
	p.Others.Clear(p.Number)
	return p, nil
}

// Confine lets all threads of a process use these processors only. Go sees by itself,
// within a second, how many they are.
func Confine(pid int, to *Set) error {
	for {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has ended, and the row finds that out
		}
		if err != nil {
			return err
		}
		moved := false
		for _, t := range tasks {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			var now Set
			if err := unix.SchedGetaffinity(id, &now); err != nil || now == *to {
				continue // ended, or there
			}
			moved = true // and others that it began meanwhile are where it was
			if err := unix.SchedSetaffinity(id, to); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("a process cannot be kept to some processors: %w", err)
			}
		}
		if !moved {
			return nil
		}
	}
}
