package report

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxLine is the maximum width of a line of prose, in characters.
const maxLine = 100

var (
	// listItem matches the beginning of a list item.
	listItem = regexp.MustCompile(`^( *)([-*]|[0-9]+\.) +`)
	// verbatim matches lines that are not prose: headings, tables, pictures and comments.
	verbatim = regexp.MustCompile(`^(#|\||!\[|<!--)`)
	// atLineStart matches words that Markdown would interpret at the beginning of a line.
	atLineStart = regexp.MustCompile(`^([-+*>=|]+|#+|[0-9]+[.)])$`)
)

// Wrap wraps the prose of a Markdown document, so that templates need not depend on the length of
// their values. Headings, tables, pictures and code blocks remain as they are.
func Wrap(markdown string) string {
	var b strings.Builder
	var words []string
	indent, code := "", false
	flush := func() {
		width := 0
		for i, w := range words {
			n := utf8.RuneCountInString(w)
			switch {
			case i == 0:
			case width+1+n > maxLine && !atLineStart.MatchString(w):
				b.WriteString("\n" + indent)
				width = len(indent)
			default:
				b.WriteByte(' ')
				width++
			}
			b.WriteString(w)
			width += n
		}
		if words != nil {
			b.WriteByte('\n')
		}
		words, indent = nil, ""
	}
	for line := range strings.Lines(markdown) {
		line = strings.TrimRight(line, " \n")
		fence := strings.HasPrefix(line, "```")
		item := listItem.FindString(line)
		switch {
		case code || fence || line == "" || verbatim.MatchString(line):
			flush()
			code = code != fence
			b.WriteString(line + "\n")
			continue
		case item != "":
			flush()
			indent = strings.Repeat(" ", len(item))
			words = append(words, strings.TrimRight(item, " "))
			line = line[len(item):]
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
	return b.String()
}
