package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

type manCommand struct{}

// Run prints the manual page, with the macros of man(7).
func (*manCommand) Run(w streams, given *kong.Context) error { return w.show(given.Model.Node) }

// manText returns a text for the manual page. Only lines that begin with two spaces keep their line
// breaks.
func manText(text string) string {
	var b strings.Builder
	verbatim := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if indented := strings.HasPrefix(line, "  "); indented != verbatim {
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[indented])
			verbatim = indented
		}
		if line = roff(line); line == "" {
			line = ".PP"
		}
		b.WriteString(line + "\n")
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
	return b.String()
}

// roff escapes the characters that roff, the formatter of manual pages, would interpret.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
