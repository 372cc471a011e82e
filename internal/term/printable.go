package term

import (
	"io"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
)

// Printable cleans everything that commands print. A name, a file's text or a server's response may
// contain characters that control a terminal or change the direction of writing. Each becomes
// U+FFFD; line ends and tabs are kept.
type Printable struct {
	w io.Writer

	mu    sync.Mutex // guards clean and keeps writes in order
	clean *transform.Writer
}

func NewPrintable(w io.Writer) *Printable {
	return &Printable{w: w, clean: transform.NewWriter(w, runes.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			return utf8.RuneError
		}
		return r
	}))}
}

// Write keeps the bytes of a character whose last byte has not been written yet.
func (p *Printable) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clean.Write(b)
}

// End writes the rest of the output. It is called after the last Write.
func (p *Printable) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.clean.Close()
}
