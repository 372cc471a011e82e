package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type manCommand struct{}

// Run prints the manual page, written with the macros of man(7).
func (*manCommand) Run(w streams, given *kong.Context) error {
	root := given.Model.Node
	var b strings.Builder
	fmt.Fprintf(&b, ".TH CARSTATE 1 \"\" \"carstate %s\"\n", roff(version))
	b.WriteString(".SH NAME\ncarstate \\- answer how cars drive and whether their throttle systems are healthy\n" +
		".SH SYNOPSIS\n.B carstate\n.I COMMAND\n[\\fIFLAG\\fR ...] [\\fIARGUMENT\\fR ...]\n.SH DESCRIPTION\n")
	manText(&b, root.Help+"\n\nMost flags have an environment variable, which their text names.")
	manValues(&b, root)
	b.WriteString(".SH COMMANDS\n")
	for _, n := range root.Children {
		manCommands(&b, n)
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, e := range []struct {
		code int
		text string
	}{
		{exitOK, "The command succeeded."},
		{exitError, "The command failed; standard error says why."},
		{exitUsage, "The command line is wrong."},
		{exitNoAnswer, "There is no answer about the vehicle."},
		{exitConfig, "The configuration of carstate serve is wrong."},
		{exitStopped, "Ctrl-C ended the command."},
		{exitPipe, "Nothing reads the output any more."},
	} {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.code, roff(e.text))
	}
	_, err := io.WriteString(w.out, b.String())
	return err
}

// manCommands writes the sections of the manual page for a command and for its subcommands.
func manCommands(b *strings.Builder, n *kong.Node) {
	if n.Hidden {
		return
	}
	fmt.Fprintf(b, ".SS \"%s\"\n", roff(n.FullPath()))
	manText(b, n.Help)
	manValues(b, n)
	if n.Detail != "" {
		b.WriteString(".PP\n")
		manText(b, n.Detail)
	}
	for _, child := range n.Children {
		manCommands(b, child)
	}
}

// manValues writes the arguments and flags of a command to the manual page.
func manValues(b *strings.Builder, n *kong.Node) {
	item := func(name string, v *kong.Value) {
		fmt.Fprintf(b, ".TP\n.B %s\n", roff(name))
		manText(b, kong.DefaultHelpValueFormatter(v))
	}
	for _, p := range n.Positional {
		item(p.Summary(), p)
	}
	for _, f := range n.Flags {
		if !f.Hidden {
			item(f.String(), f.Value)
		}
	}
}

// manText writes text to the manual page. Only lines that begin with two spaces keep their line
// breaks.
func manText(b *strings.Builder, text string) {
	verbatim := false
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		line = strings.TrimSuffix(line, "\n")
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
}

// roff escapes the characters that roff, the formatter of manual pages, would interpret.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
