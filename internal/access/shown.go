package access

import (
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
