package main

import (
	_ "embed"

	"example.org/carstate/internal/cmdline"
)

// For run, `help COMMAND` is `--help COMMAND`.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, such as token issue."`
}

// For [cmdline.Texts].
//
//go:embed help.txt
var helpText string

var longHelp = cmdline.Texts(helpText)
