package cmdline

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// ExitStatus is an exit code of the program, with a sentence that says when the program ends with
// that code.
type ExitStatus struct {
	Code int
	Text string
}

// WriteMan writes the manual page of the program, with the macros of man(7), from the help of its
// commands. The parameter purpose says in a few words what the program is for; the page shows it
// after the name of the program. The parameter exits has the exit codes.
func WriteMan(w io.Writer, root *kong.Node, version, purpose string, exits []ExitStatus) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s %s\"\n", strings.ToUpper(root.Name), root.Name, roff(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %[1]s\n", root.Name, roff(purpose))
	b.WriteString(".I COMMAND\n[\\fIFLAG\\fR ...] [\\fIARGUMENT\\fR ...]\n.SH DESCRIPTION\n")
	manText(&b, root.Help+"\n\nMost flags have an environment variable, which their text names.")
	manValues(&b, root)
	b.WriteString(".SH COMMANDS\n")
	for _, n := range root.Children {
		manCommands(&b, n)
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, e := range exits {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.Code, roff(e.Text))
	}
	_, err := io.WriteString(w, b.String())
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
