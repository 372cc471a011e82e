// Command carstate takes telemetry from vehicles and answers how each drives and whether its
// throttle system is healthy. `carstate --help` lists its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Files are private whatever the umask is, and a core dump would hold secrets.
	syscall.Umask(0o077)
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, new(syscall.Rlimit))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// SIGHUP must not end a service before it listens for it. Other commands listen for it in run,
	// and exit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// A closed pipe must cause a write error, because SIGPIPE would skip all cleanup.
	signal.Ignore(syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
