package scale

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
)

// outside stands in for the test that clustertest starts its servers for. A
// failure ends what runs, as it would end a test.
type outside struct {
	// TB is nil: it has the methods that nobody calls here. There is no other way
	// to have them all.
	testing.TB
	logf     func(format string, args ...any)
	cleanups []func()
	failed   bool
}

// failure is what a failure panics with.
type failure string

// run calls f, cleans up after it, and returns what it failed of.
func (o *outside) run(f func() error) (err error) {
	testing.Init()                  // clustertest asks for a flag of tests
	_ = flag.CommandLine.Parse(nil) // of no arguments
	defer func() {
		if r := recover(); r != nil {
			text, ours := r.(failure)
			if !ours {
				panic(r)
			}
			err = errors.New(string(text))
		}
	}()
	defer func() {
		for _, cleanUp := range slices.Backward(o.cleanups) {
			cleanUp()
		}
	}()
	return f()
}

func (o *outside) Helper()          {}
func (o *outside) Cleanup(f func()) { o.cleanups = append(o.cleanups, f) }
func (o *outside) Failed() bool     { return o.failed }

func (o *outside) Logf(format string, args ...any) { o.logf(format, args...) }

func (o *outside) Fatal(args ...any) {
	o.failed = true
	panic(failure(fmt.Sprint(args...)))
}

func (o *outside) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }
