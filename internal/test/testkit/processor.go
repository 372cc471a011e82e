package testkit

import (
	"syscall"
	"time"
)

// ProcessorTime is a better measure of cost on a busy machine than elapsed time.
func ProcessorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // the arguments are valid
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
