package testkit

import (
	"syscall"
	"time"
)

// ProcessorTime returns the CPU time that this process has used on all processors. On a busy
// machine it is a better measure of cost than elapsed time.
func ProcessorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // cannot happen, because the arguments are valid
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
