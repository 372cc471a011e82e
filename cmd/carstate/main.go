// Command carstate answers how cars drive and whether their throttle systems are
// healthy, from the telemetry that they send. `carstate --help` lists what it
// can do.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// The linker sets both when the binary is built.
var version, commit = "development", "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// SIGHUP ends no service, also not before it listens for that. Other commands listen too, and end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// A reader that went away is an error of writing, not a sudden death that
	// tidies nothing up.
	signal.Ignore(syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
