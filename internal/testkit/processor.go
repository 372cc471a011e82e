package testkit

import (
	"syscall"
	"time"
)

// ProcessorTime is what this process has had of all processors: a wall clock says little on a
// busy machine.
func ProcessorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // the arguments are right
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
