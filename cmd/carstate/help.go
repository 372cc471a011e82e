package main

import (
	_ "embed"
	"errors"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
)

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, such as token issue."`
}

// Run prints the help of a command and ends the program, as the flag --help of that command does.
// If there is no such command, Run returns a usage error.
func (c *helpCommand) Run(given *kong.Context) error {
	_, err := given.Kong.Parse(append(slices.Clone(c.Command), "--help"))
	if errors.Is(err, syscall.EPIPE) {
		return err
	}
	return usageError("%s", cmdline.Unquoted(err))
}

// helpText holds the help texts of all commands. If the help text of a flag is too long for the line
// of its struct tag, the tag has only the beginning, and helpText holds the rest. Each text follows
// a line "## NAME" (see [cmdline.Texts]).
//
//go:embed help.txt
var helpText string

var longHelp = cmdline.Texts(helpText)
