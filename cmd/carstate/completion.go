package main

import (
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCommand) Run(w streams) error {
	_, err := io.WriteString(w.out, cmdline.CompletionScript(c.Shell))
	return err
}

type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words so far; the last one is being typed."`
}

func (c *completeCommand) Run(w streams, given *kong.Context) error {
	if len(c.Words) > 1 && c.Words[0] == "help" {
		c.Words = c.Words[1:]
	}
	for _, next := range cmdline.Candidates(given.Kong, c.Words) {
		if _, err := fmt.Fprintln(w.out, next); err != nil {
			return err
		}
	}
	return nil
}
