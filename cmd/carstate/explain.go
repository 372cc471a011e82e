package main

import (
	"context"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/vehicle"
)

type explainCommand struct {
	askFlags
	VID string `arg:"" name:"vid" help:"The vehicle."`
}

func (c *explainCommand) Run(ctx context.Context, w streams) error {
	id, err := vehicle.ParseID(c.VID)
	if err != nil {
		return usageError("%v", err)
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.Vehicle(ctx, id) })
}

type relearnCommand struct {
	askFlags
	VID string `arg:"" name:"vid" help:"The vehicle."`
}

func (c *relearnCommand) Run(ctx context.Context, w streams) error {
	id, err := vehicle.ParseReportingID(c.VID)
	if err != nil {
		return usageError("%v", err)
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.Relearn(ctx, id) })
}
