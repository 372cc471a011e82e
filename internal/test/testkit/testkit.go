// Package testkit has helpers for the tests of several packages.
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

// Slow skips a test in `make check` that starts programs, or takes more than about a second.
func Slow(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped in make check: " + why)
	}
}

func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("got %v, want no error", err)
	}
}

// Context ends 15 s before the test binary's deadline, so that the test can report what it waited
// for.
func Context(t *testing.T) context.Context {
	end, ok := t.Deadline()
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), end.Add(-15*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// Patience is the limit of every wait in a test, even on a busy machine.
const Patience = time.Minute

// Await waits until ok returns true, at most for [Patience].
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("got nothing within %s, want: %s", Patience, what)
		case <-tick.C:
		}
	}
}

func Opened[C io.Closer](t testing.TB, c C, err error) C {
	t.Helper()
	NoError(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: got %v, want no error", err)
		}
	})
	return c
}

// Clock is a clock that a test controls, safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands still.
func NewClock(at time.Time) *Clock { return &Clock{now: at} }

func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock, back if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Buffer may be read while it is written.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }

// RecordedDrives returns the directory of the published drives, which must not be copied into the
// project: CARSTATE_DATA, or ../shared/data beside the repository. If it is absent, a message says
// with tested what is still tested.
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

// root returns the nearest directory with go.mod, at most four levels up.
func root() string {
	for up := "."; up != "./../../../../.."; up += "/.." {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			return up
		}
	}
	return "."
}
