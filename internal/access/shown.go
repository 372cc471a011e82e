package access

import (
	"errors"
	"io/fs"
	"strings"
	"unicode"
)

// OneLine returns the text of an error as one line without secrets and control characters, whatever
// its origin. The lines of joined errors are separated by semicolons.
func OneLine(err error) string {
	var all []string
	for line := range strings.Lines(err.Error()) {
		if words := strings.Fields(line); len(words) > 0 {
			all = append(all, strings.Join(words, " "))
		}
	}
	return Redact(Printable(strings.Join(all, "; ")))
}

// WithoutPath returns the cause of a file error, without the operation and the path. It is for
// messages that must not contain the path, or already contain it. If err wraps no [fs.PathError],
// WithoutPath returns err itself.
func WithoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Printable replaces every character that [unicode.IsPrint] rejects by U+FFFD. Such a character
// could control a terminal, end a line of a table, or be forbidden in XML. It may come from the
// name of a file, for example.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
