package main

import (
	"context"
	"fmt"

	"carstate/internal/admin/client"
	"carstate/internal/admin/wire"
)

type logLevelCommand struct {
	adminFlags
	Level string `arg:"" optional:"" default:"" enum:",debug,info,warn,error" help:"debug, info, warn or error; if left out, the level is shown."`
}

// Help returns what --help shows.
func (*logLevelCommand) Help() string {
	return `The level applies to this node until it ends or receives SIGHUP, which restores that of its settings.

Example:
  carstate log-level debug`
}

// Run shows or changes the log level of a node.
func (c *logLevelCommand) Run(ctx context.Context, w streams) error {
	return ask(c.adminFlags, false, w, func(client *client.Client) (wire.NodeSettings, error) {
		if c.Level == "" {
			return client.Node(ctx)
		}
		return client.ChangeNode(ctx, wire.NodeSettings{LogLevel: c.Level})
	}, func(s wire.NodeSettings) error {
		_, err := fmt.Fprintln(w.out, s.LogLevel)
		return err
	})
}

type readOnlyCommand struct {
	adminFlags
	State string `arg:"" optional:"" default:"" enum:",on,off" help:"on or off; if left out, the state is shown."`
}

// Help returns what --help shows.
func (*readOnlyCommand) Help() string {
	return `While it is on, this node refuses telemetry with 503 and the reason, and /readyz/ingest fails. Queries
and the changes of operators continue. It does not survive a restart. On a cluster it applies to one
node.

Example:
  carstate read-only on`
}

// Run shows or changes whether the node is read-only.
func (c *readOnlyCommand) Run(ctx context.Context, w streams) error {
	return ask(c.adminFlags, false, w, func(client *client.Client) (wire.NodeSettings, error) {
		if c.State == "" {
			return client.Node(ctx)
		}
		on := c.State == "on"
		return client.ChangeNode(ctx, wire.NodeSettings{ReadOnly: &on})
	}, func(s wire.NodeSettings) error {
		state := "off"
		if s.ReadOnly != nil && *s.ReadOnly {
			state = "on"
		}
		_, err := fmt.Fprintln(w.out, state)
		return err
	})
}
