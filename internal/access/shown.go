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

// Printable replaces every character that could control a terminal, could end a line of a table, or
// is forbidden in XML. For example, the name of a file may contain such characters.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
