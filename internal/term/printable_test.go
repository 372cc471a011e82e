package term_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"example.org/carstate/internal/term"
)

// However the text is split into writes.
func TestPrintableNeverSteersATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"a\tb\n":                      "a\tb\n",
		"Zoë 東京 a\u00a0b e\u0301 …\n": "Zoë 東京 a\u00a0b e\u0301 …\n",
		"\x1b]0;pwned\x07\x1b[31mEve": "�]0;pwned��[31mEve",
		"a\rb\bc\x00\x7f":             "a�b�c��",
		"\u202eevil\u2066x\u200fy":    "�evil�x�y",
		"\u0085\u009b31m\u2028z":      "��31m�z",
		"\x9b31m\xff\xe2\x82":         "�31m���",
		"\ufffd":                      "\ufffd",
	} {
		for name, from := range map[string]io.Reader{"at once": strings.NewReader(in),
			"byte by byte": iotest.OneByteReader(strings.NewReader(in))} {
			var got bytes.Buffer
			p := term.NewPrintable(&got)
			if _, err := io.Copy(struct{ io.Writer }{p}, struct{ io.Reader }{from}); err != nil {
				t.Fatalf("the copy: got %v, want no error", err)
			}
			p.End()
			if got.String() != want {
				t.Errorf("%q %s became %q, want %q", in, name, &got, want)
			}
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add([]byte("a\x1b[31m\u202eé"), 3)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		cut = min(max(cut, 0), len(text))
		var pieces, whole bytes.Buffer
		p, q := term.NewPrintable(&pieces), term.NewPrintable(&whole)
		for _, b := range [][]byte{text[:cut], text[cut:]} {
			if n, err := p.Write(b); n != len(b) || err != nil {
				t.Fatalf("Write: got %d, error %v; want %d", n, err, len(b))
			}
		}
		_, _ = q.Write(text)
		p.End()
		q.End()
		if !bytes.Equal(pieces.Bytes(), whole.Bytes()) {
			t.Errorf("%q in pieces: got %q, want %q", text, &pieces, &whole)
		}
		if bytes.ContainsFunc(whole.Bytes(), func(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' && r != '\t' }) ||
			!utf8.Valid(whole.Bytes()) {
			t.Errorf("%q: got %q, want only graphic characters", text, &whole)
		}
	})
}
