package main

import (
	"errors"
	"fmt"

	"example.org/carstate/internal/store"
)

const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitNoAnswer = 3
	// exitConfig is EX_CONFIG of sysexits.h: a restart does not help. It differs from exitUsage,
	// because a Go program exits with 2 after a panic, too.
	exitConfig = 78
	// exitStopped and exitPipe are what shells report after Ctrl-C and SIGPIPE.
	exitStopped = 130
	exitPipe    = 141
)

// partialError is an error halfway; text says how much was done.
type partialError struct {
	error
	text string
}

func (p partialError) Unwrap() error { return p.error }
func (p partialError) Error() string { return p.error.Error() + p.text }

// errNoAnswer needs no message, because the reason was printed.
var errNoAnswer = errors.New("there is no answer")

func usageError(format string, args ...any) error {
	return store.ConfigError(fmt.Errorf(format, args...))
}
