package scale

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
)

// outside implements [testing.TB] outside a test, because the functions of package clustertest,
// which start the servers, take a test. A failure ends the measurement as it would end a test.
type outside struct {
	// TB is nil. It only provides the methods that are never called here: without it, a type
	// outside the package testing cannot implement [testing.TB].
	testing.TB
	logf     func(format string, args ...any)
	cleanups []func()
	failed   bool
}

// failure is the text of a failure. outside panics with a value of this type.
type failure string

// run calls f, then the cleanups, and returns f's error or the failure.
func (o *outside) run(f func() error) (err error) {
	testing.Init()                  // clustertest reads a flag of package testing
	_ = flag.CommandLine.Parse(nil) // without arguments
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
