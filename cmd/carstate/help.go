package main

import (
	"cmp"
	_ "embed"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
)

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, such as token issue."`
}

func (c *helpCommand) Run(given *kong.Context) error {
	named, err := kong.Trace(given.Kong, c.Command)
	if err = cmp.Or(err, named.Error); err != nil {
		return usageError("%s", cmdline.Unquoted(err))
	}
	return named.PrintUsage(false)
}

// helpText has the help texts of commands, and those of flags that are too long for the struct tag
// (see [cmdline.Texts]).
//
//go:embed help.txt
var helpText string

var longHelp = cmdline.Texts(helpText)
