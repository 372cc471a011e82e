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

func (c *helpCommand) Run(given *kong.Context) error {
	_, err := given.Kong.Parse(append(slices.Clone(c.Command), "--help"))
	if errors.Is(err, syscall.EPIPE) {
		return err
	}
	return usageError("%s", cmdline.Unquoted(err))
}

// helpText has the help texts of commands, and those of flags that are too long for the struct tag
// (see [cmdline.Texts]).
//
//go:embed help.txt
var helpText string

var longHelp = cmdline.Texts(helpText)
