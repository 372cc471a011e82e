package scale

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"carstate/bench/must"
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

func newOutside(logf func(format string, args ...any)) *outside {
	testing.Init()                  // clustertest reads a flag of package testing
	_ = flag.CommandLine.Parse(nil) // without arguments
	return &outside{logf: logf}
}

func (o *outside) cleanUp() {
	for _, f := range slices.Backward(o.cleanups) {
		f()
	}
}

func (o *outside) Helper()          {}
func (o *outside) Cleanup(f func()) { o.cleanups = append(o.cleanups, f) }
func (o *outside) Failed() bool     { return o.failed }

func (o *outside) Logf(format string, args ...any) { o.logf(format, args...) }

func (o *outside) Fatal(args ...any) {
	o.failed = true
	must.Fail("%s", fmt.Sprint(args...))
}

func (o *outside) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }
