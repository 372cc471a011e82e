package main

import (
	"context"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/admin/wire"
)

type logLevelCommand struct {
	adminFlags
	Level string `arg:"" optional:"" default:"" enum:",debug,info,warn,error" help:"debug, info, warn or error; if left out, the level is shown."`
}

func (c *logLevelCommand) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(client *client.Client) (any, error) {
		if c.Level == "" {
			return client.Node(ctx)
		}
		return client.ChangeNode(ctx, wire.NodeSettings{LogLevel: c.Level})
	})
}

type readOnlyCommand struct {
	adminFlags
	State string `arg:"" optional:"" default:"" enum:",on,off" help:"on or off; if left out, the state is shown."`
}

func (c *readOnlyCommand) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(client *client.Client) (any, error) {
		if c.State == "" {
			return client.Node(ctx)
		}
		on := c.State == "on"
		return client.ChangeNode(ctx, wire.NodeSettings{ReadOnly: &on})
	})
}
