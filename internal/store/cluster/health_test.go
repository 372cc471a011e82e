package cluster

import (
	"testing"
)

// Tries that fail tell that only a restart helps when they are many, over many
// looks, and none was stored in between.
func TestHopeless(t *testing.T) {
	h := new(writeHealth)
	for range 2 {
		for i := range 2 * hopelessLooks {
			if h.look() {
				t.Fatal("nothing failed, and there is no hope")
			}
			if i%3 == 2 {
				h.noteFailed()
				h.noteStored()
			}
		}
		for i := range hopelessLooks {
			if i < hopelessTries {
				h.noteFailed()
			}
			if got, want := h.look(), i == hopelessLooks-1; got != want {
				t.Fatalf("look %d: %t", i+1, got)
			}
		}
		h.noteStored()
	}
	for range 2 * hopelessLooks { // a write that expired while the machine was paused
		if h.failed == 0 {
			h.noteFailed()
		}
		if h.look() {
			t.Fatal("one try that failed is no reason")
		}
	}
}
