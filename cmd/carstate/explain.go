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

// Run prints both verdicts about a vehicle, the measures that they are based on, and its newest
// readings.
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

// Run discards what was learned of the throttle of a vehicle, and its anomaly.
func (c *relearnCommand) Run(ctx context.Context, w streams) error {
	id, err := vehicle.ParseReportingID(c.VID)
	if err != nil {
		return usageError("%v", err)
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.Relearn(ctx, id) })
}
