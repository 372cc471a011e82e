package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/node"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/servicelog"
)

type serveCommand struct {
	serveFlags
	Check bool `help:"Check the configuration, print each value and its source, and exit."`
}

func (c *serveCommand) Run(ctx context.Context, w streams, given *kong.Context) error {
	log, level := servicelog.New(w.err, c.LogLevel, c.LogFormat)
	if c.Check {
		log, level = servicelog.New(w.err, "info", "text")
	}
	if names := cmdline.UnknownVariables(given.Model.Node, "CARSTATE_"); len(names) > 0 {
		log.Warn("environment variables with unknown names are ignored: correct or remove them", "names", names)
	}
	config, err := c.node(log, level)
	if err != nil {
		return err
	}
	if c.Check {
		return c.check(w, given, config)
	}
	n, err := startNode(ctx, config)
	if err != nil {
		return err
	}
	// Logged only now: if the start fails, the log has only the line with the reason.
	log.Info("started", "version", version, "commit", commit)
	for _, l := range config.Listeners {
		log.Info("listening", "for", l.Name, "address", n.Addr(l.Name).String(), "tls", l.TLS)
	}
	if c.has(node.Admin) {
		log.Info("the console is open", "url", n.URL(node.AdminAddr)+"/", "key", ops.KeyFile(c.DataDir))
	}
	err = n.Wait(ctx)
	// The cause of ctx names the signal.
	log.Info("ending", "reason", cmp.Or(err, context.Cause(ctx)).Error(), "version", version)
	defer func(began time.Time) { log.Info("ended", "took", time.Since(began)) }(time.Now())
	if err == nil {
		again, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = n.Drain(again)
		stop()
	}
	return errors.Join(err, n.Close())
}

func (c *serveCommand) check(w streams, given *kong.Context, config node.Config) error {
	certificateEnds, err := node.Check(config)
	if err != nil {
		return err
	}
	return w.show(struct {
		*serveFlags
		Settings        []cmdline.Setting
		Listeners       []node.Listener
		CertificateEnds time.Time
	}{&c.serveFlags, cmdline.Settings(given, "help", "check"), config.Listeners, certificateEnds})
}

// startNode starts a node that reads files again on SIGHUP, which must not end it, even while it
// starts or ends.
func startNode(ctx context.Context, config node.Config) (*node.Node, error) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	n, err := node.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	go func() {
		for range hangups {
			n.Reload()
		}
	}()
	return n, nil
}
