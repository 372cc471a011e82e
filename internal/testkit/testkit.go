// Package testkit has helpers for the tests of several packages: a clock that a test controls, a
// log buffer that may be read while it is written, waiting, certificates, HTTP requests to a node,
// and the directory of the recorded drives. For example:
//
//	log := new(testkit.Buffer)
//	start(slog.New(slog.NewTextHandler(log, nil)))
//	testkit.Await(t, "the node is ready", func() bool { return log.Count("ready") > 0 })
package testkit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Slow skips a test in `make check` (go test -short). why is the reason: the test
// starts other programs, or takes more than about a second. `make test` skips no test.
func Slow(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped in make check: " + why)
	}
}

// Unraced skips a test under the race detector. It is for the tests that the detector slows down
// most and that run nothing of the service concurrently in their own process, so that there can be no
// race. `make test` runs the test without the race detector: its name is in the Makefile's
// UNRACEDTESTS, and internal/archtest checks that.
func Unraced(t testing.TB) {
	t.Helper()
	if RaceDetector {
		t.Skip("make test runs it without the race detector")
	}
}

// NoError fails the test at once if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Context returns a context that ends 15 s before the deadline of the test binary, so that the test
// can report what it waited for. Use Context as the limit of a whole test, and [Await] as the limit
// of one wait.
func Context(t *testing.T) context.Context {
	end, ok := t.Deadline()
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), end.Add(-15*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// Patience is the limit of every wait in a test. A wait that takes longer has failed, even if the
// machine is busy.
const Patience = time.Minute

// Await waits until ok returns true. If that takes longer than [Patience], it fails the test with a
// text that ends with what, a description of the expected event.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("did not happen within %s: %s", Patience, what)
		case <-tick.C:
		}
	}
}

// Opened returns what a function has opened, and closes it when the test ends. err is
// the error of that function; if it is not nil, Opened fails the test at once.
func Opened[C io.Closer](t testing.TB, c C, err error) C {
	t.Helper()
	NoError(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Clock is a clock that a test controls. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows the given time until Advance is called.
func NewClock(at time.Time) *Clock { return &Clock{now: at} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward, or back if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Buffer is a buffer that may be read while it is written. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often text occurs in what was written so far.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }

// RecordedDrives returns the directory of the published drives, which must not be copied into the
// project. The directory is CARSTATE_DATA, or by default ../shared/data relative to the repository.
// If it does not exist, RecordedDrives returns "" and prints a message that ends with the parameter
// tested. That text says what is still tested without these drives.
func RecordedDrives(tested string) string {
	dir := os.Getenv("CARSTATE_DATA")
	if dir == "" {
		dir = "../shared/data"
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root(), dir) // tests run in the directory of their package
	}
	if _, err := os.Stat(dir); err != nil {
		fmt.Fprintf(os.Stderr, "recorded drives are absent at %s: set CARSTATE_DATA to their folder; %s\n", dir, tested)
		return ""
	}
	return dir
}

// root returns the relative path to the nearest directory that holds go.mod, among the current one
// and its four parents, or "." if there is none.
func root() string {
	for up := "."; up != "./../../../../.."; up += "/.." {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			return up
		}
	}
	return "."
}
