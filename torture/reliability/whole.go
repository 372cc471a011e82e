package reliability

import (
	"fmt"
	"strings"
	"time"
)

// Whole is the last run of all rows in one call.
type Whole struct {
	Machine string        `json:"machine"`
	Version string        `json:"version"` // of the code
	At      time.Time     `json:"at"`
	Took    time.Duration `json:"took_ns"` // with the controls and the building
	Seed    uint64        `json:"seed"`
	Rows    int           `json:"rows"`
	// Controls are how many there were, Caught how many of them were seen.
	Controls int `json:"controls"`
	Caught   int `json:"caught"`
	// Failed are rows that did not pass, and controls that were not caught.
	Failed []string `json:"failed,omitempty"`
}

// Add counts a row that was done.
func (w *Whole) Add(o Done) {
	w.Rows++
	w.Controls += len(o.Controls)
	w.Caught += o.seen()
}

// String is a sentence for the page and the terminal.
func (w *Whole) String() string {
	passed := "all passed"
	if len(w.Failed) > 0 {
		passed = "not passed: " + strings.Join(w.Failed, ", ")
	}
	return fmt.Sprintf("%d rows in one call with seed %d, %s, version %s: %s, controls caught %d of %d, in %s",
		w.Rows, w.Seed, w.At.Format(time.DateOnly), w.Version, passed, w.Caught, w.Controls, w.Took.Round(time.Second))
}
