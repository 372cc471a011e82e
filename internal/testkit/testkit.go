// Package testkit is what the tests of several packages share: a clock that a test
// turns, a log that it reads while others write it, how it waits, certificates, what it
// asks a node by HTTP, and where the recorded drives are.
package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Slow leaves a test out of `make check` (go test -short) and says why: it starts other
// programs, or it takes more than about a second. `make test` leaves nothing out.
func Slow(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out of make check: " + why)
	}
}

// Context ends shortly before the test would be ended by force, so that the test can
// say what it waited for. It bounds a whole test; [Await] bounds one wait.
func Context(t *testing.T) context.Context {
	end, ok := t.Deadline()
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), end.Add(-15*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// Patience bounds every wait of a test: a wait that lasts longer has failed, also on a
// busy machine.
const Patience = time.Minute

// Await waits for a condition, for at most [Patience].
func Await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("it did not happen within %s: %s", Patience, what)
		case <-tick.C:
		}
	}
}

// Clock is a clock that a test turns. Safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at a time.
func NewClock(at time.Time) *Clock { return &Clock{now: at} }

// Now is the time that the clock shows.
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

// Buffer is a buffer that may be read while it is written.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends, and never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count is how often a text was written so far.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }

// RecordedDrives is the folder with the published drives, which may not be copied
// into the project: CARSTATE_DATA, by default ../shared/data, relative to the
// repository. Empty, after saying loudly what is tested instead, if there is none.
func RecordedDrives(tested string) string {
	dir := os.Getenv("CARSTATE_DATA")
	if dir == "" {
		dir = "../shared/data"
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root(), dir) // tests run in the folder of their package
	}
	if _, err := os.Stat(dir); err != nil {
		fmt.Fprintf(os.Stderr, "recorded drives are absent at %s: set CARSTATE_DATA to their folder; %s\n", dir, tested)
		return ""
	}
	return dir
}

// root is the way up to the folder that holds go.mod; the folder of the test where
// there is none.
func root() string {
	for up := "."; up != "./../../../../.."; up += "/.." {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			return up
		}
	}
	return "."
}
