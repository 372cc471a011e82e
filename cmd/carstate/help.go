package main

import (
	"errors"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"carstate/internal/access"
)

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, such as token issue."`
}

// Help returns what --help shows.
func (*helpCommand) Help() string { return "Example:\n  carstate help token issue" }

// Run prints the help of a command and ends the program, as the flag --help of that command does.
func (c *helpCommand) Run(given *kong.Context) error {
	_, err := given.Kong.Parse(append(slices.Clone(c.Command), "--help"))
	if errors.Is(err, syscall.EPIPE) {
		return err
	}
	return usageError("%s", unquoted(access.OneLine(err)))
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
