package main

import (
	"github.com/alecthomas/kong"

	"carstate/internal/cmdline"
)

type manCommand struct{}

// Run prints the manual page.
func (*manCommand) Run(w streams, given *kong.Context) error {
	return cmdline.WriteMan(w.out, given.Model.Node, version,
		"answer how cars drive and whether their throttle systems are healthy", []cmdline.ExitStatus{
			{Code: exitOK, Text: "The command succeeded."},
			{Code: exitError, Text: "The command failed; standard error says why."},
			{Code: exitUsage, Text: "The command line is wrong."},
			{Code: exitNoAnswer, Text: "There is no answer about the vehicle."},
			{Code: exitConfig, Text: "The configuration of carstate serve is wrong."},
			{Code: exitStopped, Text: "Ctrl-C ended the command."},
			{Code: exitPipe, Text: "Nothing reads the output any more."},
		})
}
