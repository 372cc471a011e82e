package access

import (
	"errors"
	"io/fs"
	"strings"
	"unicode"
)

// OneLine returns err's text without secrets and control characters; semicolons separate joined
// errors.
func OneLine(err error) string {
	var all []string
	for line := range strings.Lines(err.Error()) {
		if words := strings.Fields(line); len(words) > 0 {
			all = append(all, strings.Join(words, " "))
		}
	}
	return Redact(Printable(strings.Join(all, "; ")))
}

// WithoutPath returns the cause in an [fs.PathError], for messages that name the path already, or
// must not.
func WithoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Printable puts U+FFFD in place of a character that could control a terminal, end a line of a
// table, or be forbidden in XML.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
