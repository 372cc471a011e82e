package term

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Meter is a writer that counts the bytes written to it and shows their number on a terminal.
type Meter struct {
	w     *os.File // nil if w is not a terminal
	bytes int
	next  time.Time
}

// NewMeter returns a Meter that begins at zero bytes. It shows their number on w if w is a
// terminal.
func NewMeter(w io.Writer) *Meter { return &Meter{w: Terminal(w)} }

func (m *Meter) Write(p []byte) (int, error) {
	m.bytes += len(p)
	if now := time.Now(); m.w != nil && now.After(m.next) {
		m.next = now.Add(200 * time.Millisecond)
		fmt.Fprintf(m.w, "\r%.1f MB", float64(m.bytes)/1e6)
	}
	return len(p), nil
}

// End shows the final number of bytes and ends the line on the terminal.
func (m *Meter) End() {
	if m.w != nil && m.bytes > 0 {
		fmt.Fprintf(m.w, "\r%.1f MB\n", float64(m.bytes)/1e6)
	}
}
