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
	return c.settings(ctx, w, wire.NodeSettings{LogLevel: c.Level})
}

type readOnlyCommand struct {
	adminFlags
	State string `arg:"" optional:"" default:"" enum:",on,off" help:"on or off; if left out, the state is shown."`
}

func (c *readOnlyCommand) Run(ctx context.Context, w streams) error {
	var change wire.NodeSettings
	if c.State != "" {
		change.ReadOnly = new(c.State == "on")
	}
	return c.settings(ctx, w, change)
}

func (f adminFlags) settings(ctx context.Context, w streams, change wire.NodeSettings) error {
	return f.ask(w, func(client *client.Client) (any, error) {
		if change == (wire.NodeSettings{}) {
			return client.Node(ctx)
		}
		return client.ChangeNode(ctx, change)
	})
}
