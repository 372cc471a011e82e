package main

import (
	"errors"
	"fmt"
)

// Exit codes.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitNoAnswer = 3
	// exitConfig is EX_CONFIG of sysexits.h: the configuration of serve is wrong, and a restart
	// does not help. The usual code 2 cannot mean a wrong configuration, because a Go program
	// exits with code 2 after a panic.
	exitConfig = 78
	// exitStopped is the code that shells report for a program ended by Ctrl-C.
	exitStopped = 130
	// exitPipe is the code that shells report for a program whose output is no longer read.
	exitPipe = 141
)

// partialError is an error that stopped work halfway. Its message ends with text, which says how
// much of the work was done.
type partialError struct {
	error
	text string
}

func (p partialError) Unwrap() error { return p.error }
func (p partialError) Error() string { return p.error.Error() + p.text }

// progressOf returns the part of an error's text that says how much of the work was done. If err is
// not a partialError, it returns "".
func progressOf(err error) string {
	if p, ok := errors.AsType[partialError](err); ok {
		return p.text
	}
	return ""
}

// errNoAnswer means that the service has no verdict. The command has already printed the reason, so
// the program adds no error and ends with exitNoAnswer.
var errNoAnswer = errors.New("there is no answer")

// wrongUsage is an error in how the command was called. The program then ends with exitUsage.
type wrongUsage string

func (u wrongUsage) Error() string { return string(u) }

// usageError returns a [wrongUsage] with a text that says what to do.
func usageError(format string, args ...any) error { return wrongUsage(fmt.Sprintf(format, args...)) }
