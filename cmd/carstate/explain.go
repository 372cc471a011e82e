package main

import (
	"context"

	"carstate/internal/admin/client"
	"carstate/internal/vehicle"
)

type explainCommand struct {
	askFlags
	VID string `arg:"" name:"vid" help:"The vehicle."`
}

// Run prints both verdicts about a vehicle, the measures that they are based on, and its newest
// readings.
func (c *explainCommand) Run(ctx context.Context, w streams) error {
	id, err := vehicle.ParseID(c.VID)
	if err != nil {
		return usageError("%v", err)
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.Vehicle(ctx, id) })
}
