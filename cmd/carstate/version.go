package main

import (
	"fmt"
	"runtime"
)

type versionCommand struct{}

// Help is shown by --help.
func (*versionCommand) Help() string { return "Example:\n  carstate version" }

// Run prints the version.
func (*versionCommand) Run(w streams) error {
	_, err := fmt.Fprintf(w.out, "carstate %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
