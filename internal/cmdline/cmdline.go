// Package cmdline has the parts of a command line that are the same for all its commands: long help
// texts, completion in shells, settings and where they come from, and the texts of errors. It works
// on the parser's model of the commands. It must not know any single command.
package cmdline

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Texts returns an option of the parser that adds long help texts. text has a section
// for each of them (see [Sections]). The section with the name of a command becomes the long help
// of that command. A help text of a flag may end with ${more_NAME}; the text of the section
// more_NAME, as one line, then replaces ${more_NAME}. The parser's own variables (kong.Vars) are
// not used for this, because the parser interpolates every variable again for every flag, which
// took 45 ms at the start of each command.
func Texts(text string) kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		texts := Sections(text)
		return kong.Visit(k.Model.Node, func(v kong.Visitable, next kong.Next) error {
			switch v := v.(type) {
			case *kong.Node:
				v.Detail = texts[v.Path()]
			case *kong.Flag:
				if before, name, ok := strings.Cut(v.Help, "${more_"); ok {
					v.Help = before + strings.ReplaceAll(texts["more_"+strings.TrimSuffix(name, "}")], "\n", " ")
				}
			}
			return next(nil)
		})
	})
}

// Sections splits a text into sections and returns them by name. Each section begins after a line
// "## NAME" and ends before the next such line. White space at its ends is removed. Text before the
// first section has the name "".
func Sections(text string) map[string]string {
	sections := make(map[string]string)
	for section := range strings.SplitSeq("\n"+text, "\n## ") {
		name, body, _ := strings.Cut(section, "\n")
		sections[name] = strings.TrimSpace(body)
	}
	return sections
}

// IsGroup reports whether the arguments name a command that does nothing itself and only has
// subcommands. Without arguments, the command is root. If there is no such command, IsGroup returns
// false.
func IsGroup(root *kong.Node, args []string) bool {
	n := root
	for _, name := range args {
		if n = subcommand(n, name); n == nil {
			return false
		}
	}
	return len(n.Children) > 0
}

// subcommand returns the named subcommand of n, or nil if there is none.
func subcommand(n *kong.Node, name string) *kong.Node {
	i := slices.IndexFunc(n.Children, func(c *kong.Node) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return n.Children[i]
}
