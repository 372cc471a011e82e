package hostile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// apart gives attackers a processor of their own, as if they had a machine of their
// own: the node and this process, which asks it, get the others until back is called.
// The kernel may be in the middle of one of the attacker's calls, which look at
// thousands of connections, and not give the processor to anybody else before that
// ends, however little the attacker's turn counts. The processor is -1 where there is
// but one.
func (w *world) apart() (processor int, back func() error, err error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(w.PID(), &all); err != nil {
		return 0, nil, fmt.Errorf("which processors it may use cannot be told: %w", err)
	}
	if all.Count() < 2 {
		return -1, func() error { return nil }, nil
	}
	others := all
	for processor = 0; !all.IsSet(processor); processor++ {
	}
	others.Clear(processor)
	set := func(s *unix.CPUSet) error {
		return errors.Join(confine(w.PID(), s), confine(os.Getpid(), s))
	}
	return processor, func() error { return set(&all) }, set(&others)
}

// confine lets all threads of a process use these processors only. Go sees by itself,
// within a second, how many they are.
func confine(pid int, to *unix.CPUSet) error {
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
			var now unix.CPUSet
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
