package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/node"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/servicelog"
)

type serveCommand struct {
	serveFlags
	Config string `placeholder:"FILE" help:"File of settings: one name = value on each line, with the names of these flags. ${more_config}"`
	Check  bool   `help:"Check the configuration, print each value and its source, and exit."`

	settings cmdline.Settings
}

// BeforeResolve is called by the parser before it looks for values of the flags that are not on the
// command line. BeforeResolve reads the configuration file (--config), so that the parser finds
// values there.
func (c *serveCommand) BeforeResolve(given *kong.Context) (err error) {
	c.settings, err = cmdline.LoadSettings(given, "config", []string{"help", "config", "check"})
	return err
}

// Run runs a node until a signal ends it; then the error is nil, unless the node cannot end in
// order. If the node cannot start or fails, Run returns the error. With --check, Run only checks
// the settings and runs no node.
func (c *serveCommand) Run(ctx context.Context, w streams, given *kong.Context) error {
	if c.Check {
		return c.check(w, given)
	}
	// SIGHUP must not end a node, not even while the node starts or ends.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	log, level := servicelog.New(w.err, c.LogLevel, c.LogFormat)
	warnOfUnknown(log, given)
	config, err := c.node(log, level)
	if err != nil {
		return err
	}
	n, err := node.Start(ctx, config)
	if err != nil {
		return err
	}
	// This line is logged only after the start. If the start fails, the log has only the line
	// with the reason.
	log.Info("started", "version", version, "commit", commit)
	for _, l := range config.Listeners {
		log.Info("listening", "for", l.Name, "address", n.Addr(l.Name).String(), "tls", l.TLS)
	}
	if c.has(node.Admin) {
		log.Info("the console is open", "url", n.URL(node.AdminAddr)+"/", "key", ops.KeyFile(c.DataDir))
	}
	settings := reloader{node: n, log: log, args: given.Args, running: c.settings.Values(given)}
	go func() {
		for range hangups {
			settings.reload()
		}
	}()
	err = n.Wait(ctx)
	// The cause of ctx names the signal.
	log.Info("ending", "reason", cmp.Or(err, context.Cause(ctx)).Error(), "version", version)
	if err == nil {
		again, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = n.Drain(again)
		stop()
	}
	return errors.Join(err, n.Close())
}

// warnOfUnknown warns of environment variables that look like settings but are not known.
func warnOfUnknown(log *slog.Logger, given *kong.Context) {
	if names := cmdline.UnknownVariables(given.Model.Node, "CARSTATE_"); len(names) > 0 {
		log.Warn("environment variables with unknown names are ignored: correct or remove them", "names", names)
	}
}
