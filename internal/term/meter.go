package term

import (
	"fmt"
	"io"
	"os"
	"time"
)

type Meter struct {
	w     *os.File // nil if it is no terminal
	bytes int
	next  time.Time
}

// NewMeter shows the number on w if w is a terminal.
func NewMeter(w io.Writer) *Meter { return &Meter{w: Terminal(w)} }

func (m *Meter) Write(p []byte) (int, error) {
	m.bytes += len(p)
	if now := time.Now(); m.w != nil && now.After(m.next) {
		m.next = now.Add(200 * time.Millisecond)
		fmt.Fprintf(m.w, "\r%.1f MB", float64(m.bytes)/1e6)
	}
	return len(p), nil
}

func (m *Meter) End() {
	if m.w != nil && m.bytes > 0 {
		fmt.Fprintf(m.w, "\r%.1f MB\n", float64(m.bytes)/1e6)
	}
}
