package access

import (
	"strings"
	"unicode"
)

// OneLine returns the text of an error as one line that is free of secrets and of control
// characters, whatever the origin of the text. The lines of joined errors stay apart.
func OneLine(err error) string {
	var all []string
	for line := range strings.Lines(err.Error()) {
		if words := strings.Fields(line); len(words) > 0 {
			all = append(all, strings.Join(words, " "))
		}
	}
	return Redact(Printable(strings.Join(all, "; ")))
}

// Printable replaces every character that could steer a terminal, end a line of a table or
// is forbidden in XML, as the name of a file may hold.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
