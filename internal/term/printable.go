package term

import (
	"bytes"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Printable is a writer that cleans everything that commands print. A name, a file's text or a
// server's response may contain characters that control a terminal or change the direction of
// writing. Each such character, and each byte that is not UTF-8, becomes U+FFFD. Line ends and tabs
// are kept.
type Printable struct {
	w io.Writer

	mu   sync.Mutex // guards rest and keeps writes in order
	rest []byte     // the first bytes of a character whose last byte has not been written yet
}

// NewPrintable returns a writer that cleans what is written to w.
func NewPrintable(w io.Writer) *Printable { return &Printable{w: w} }

func (p *Printable) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rest) == 0 && !bytes.ContainsFunc(b, mayHarm) {
		return p.w.Write(b)
	}
	text := append(p.rest, b...)
	p.rest = nil
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= whole; i++ {
		if tail := text[whole-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				p.rest = bytes.Clone(tail)
				text = text[:whole-i]
			}
			break
		}
	}
	if _, err := p.w.Write(cleaned(text)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// End writes the rest of the output: the bytes of a character that is still incomplete. It is
// called after the last Write.
func (p *Printable) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rest) > 0 {
		_, _ = p.w.Write(cleaned(p.rest))
		p.rest = nil
	}
}

func cleaned(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if mayHarm(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// mayHarm reports whether r must be replaced before it is printed: a control character, a character
// that changes the direction of writing, or a byte that is not UTF-8. Line ends and tabs do no
// harm.
func mayHarm(r rune) bool {
	return r == utf8.RuneError || r != '\n' && r != '\t' && !unicode.IsGraphic(r)
}
