package main

import (
	_ "embed"
	"errors"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"carstate/internal/access"
)

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, such as token issue."`
}

// Run prints the help of a command and ends the program, as the flag --help of that command does.
func (c *helpCommand) Run(given *kong.Context) error {
	_, err := given.Kong.Parse(append(slices.Clone(c.Command), "--help"))
	if errors.Is(err, syscall.EPIPE) {
		return err
	}
	return usageError("%s", unquoted(access.OneLine(err)))
}

// helpText holds the help texts of all commands, and the ends of the help texts of flags that are too
// long for the line of a struct tag. Each text follows a line "## NAME".
//
//go:embed help.txt
var helpText string

// longHelp gives each command the section of helpText that has its name, and replaces each ${more_…}
// at the end of a flag's help by the section of that name, as one line. These texts are no kong.Vars,
// because the parser interpolates every variable again for every flag, which took 45 ms at the start
// of each command.
var longHelp = kong.PostBuild(func(k *kong.Kong) error {
	texts := helpSections()
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

// helpSections returns the sections of helpText by their names.
func helpSections() map[string]string {
	texts := make(map[string]string)
	for section := range strings.SplitSeq("\n"+helpText, "\n## ") {
		name, text, _ := strings.Cut(section, "\n")
		texts[name] = strings.TrimSpace(text)
	}
	return texts
}

// isGroup reports whether the arguments name a command that only has subcommands.
func isGroup(root *kong.Node, args []string) bool {
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
