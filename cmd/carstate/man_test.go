package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestManNamesEveryCommandAndFlag checks that the manual page has every command and flag, and that
// it is valid roff: known macros, closed blocks, and only known escapes after a backslash.
func TestManNamesEveryCommandAndFlag(t *testing.T) {
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"man"}, &out, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Fatalf("exit code %d, %s", code, &stderr)
	}
	page := out.String()
	sections := map[string]string{}
	for section := range strings.SplitSeq(page, "\n.S") {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	parser, err := kong.New(&commands{}, kong.Name("carstate"), longHelp)
	if err != nil {
		t.Fatal(err)
	}
	flags := 0
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		text, found := sections[`S "`+escaped(n.FullPath())+`"`]
		if n == parser.Model.Node {
			text, found = sections["H DESCRIPTION"], true
		}
		if found == n.Hidden {
			t.Errorf("%s: found %v, hidden %v", n.FullPath(), found, n.Hidden)
		}
		for _, f := range n.Flags {
			flags++
			line := regexp.MustCompile(`(?m)^\.B .*\\-\\-` + regexp.QuoteMeta(escaped(f.Name)) + `(=|$)`)
			if !n.Hidden && !f.Hidden && !line.MatchString(text) {
				t.Errorf("%s has no --%s", n.FullPath(), f.Name)
			}
		}
		for _, child := range n.Children {
			visit(child)
		}
	}
	visit(parser.Model.Node)
	if flags < 100 {
		t.Errorf("only %d flags", flags)
	}

	verbatim := false
	for i, line := range strings.Split(strings.TrimSuffix(page, "\n"), "\n") {
		switch macro, _, _ := strings.Cut(line, " "); macro {
		case ".nf", ".fi":
			if verbatim == (macro == ".nf") {
				t.Errorf("line %d: %s twice", i+1, macro)
			}
			verbatim = !verbatim
		case ".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I":
			if verbatim {
				t.Errorf("line %d: %s without .fi", i+1, macro)
			}
		default:
			if line == "" || line[0] == '.' || line[0] == '\'' {
				t.Errorf("line %d: %q", i+1, line)
			}
		}
		if bad := regexp.MustCompile(`\\(e|-|&|\(dq|f[BIR])`).ReplaceAllString(line, ""); strings.Contains(bad, `\`) {
			t.Errorf("line %d: %q", i+1, line)
		}
	}
}

// escaped returns the name of a command or of a flag as it is in a manual page.
func escaped(name string) string { return strings.ReplaceAll(name, "-", `\-`) }
