// Package testkit is what the tests of several packages share: a clock that a test
// turns, and a log that a test reads while others write it.
package testkit

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

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
