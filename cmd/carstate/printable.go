package main

import (
	"bytes"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// printable cleans all that commands print: a name, a file's text or an answer of a server may hold
// characters that steer a terminal or turn the direction of writing. Each of them, and what is no
// UTF-8, becomes U+FFFD. Line ends and tabs stay.
type printable struct {
	w io.Writer

	mu   sync.Mutex // guards rest and the order of writes
	rest []byte     // the beginning of a character whose end has not come yet
}

func (p *printable) Write(b []byte) (int, error) {
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

// end writes what is left of a character that was cut off.
func (p *printable) end() {
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

// mayHarm reports whether a character steers instead of showing something: controls, marks that
// turn the direction of writing and the like, and what is no UTF-8.
func mayHarm(r rune) bool {
	return r == utf8.RuneError || r != '\n' && r != '\t' && !unicode.IsGraphic(r)
}
