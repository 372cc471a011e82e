package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/vehicle"
)

type forgetCommand struct {
	sureFlags
	VID   string `arg:"" name:"vid" help:"The vehicle."`
	Allow bool   `help:"Allow a vehicle that is erased to report again; it starts without its old state."`
}

func (c *forgetCommand) Run(ctx context.Context, w streams) error {
	id, err := vehicle.ParseReportingID(c.VID)
	if err != nil {
		return usageError("%v", err)
	}
	return c.ask(w, func(client *client.Client) (any, error) {
		if !c.Allow {
			return c.forget(ctx, w, client, id)
		}
		return client.Allow(ctx, id)
	})
}

// forgetPrompt gets [access.ErrNotFound] if the vehicle is unknown or forgotten already.
func forgetPrompt(err error) string {
	known := "Everything that is known of this vehicle will be erased on every node"
	if errors.Is(err, access.ErrNotFound) {
		known = err.Error()
		known = strings.ToUpper(known[:1]) + known[1:]
	}
	return known + ". Forget it?"
}

func (c *forgetCommand) forget(
	ctx context.Context, w streams, client *client.Client, id vehicle.ID,
) (access.ForgetReceipt, error) {
	if c.asks() {
		_, err := client.Vehicle(ctx, id)
		if err := c.sure(ctx, w, "%s", forgetPrompt(err)); err != nil {
			return access.ForgetReceipt{}, err
		}
	}
	r, err := client.Forget(ctx, id)
	if err == nil && r.Removed == (access.RemovedCount{}) {
		fmt.Fprintln(w.err, "Nothing is known of this vehicle, or nothing any more since it was forgotten before, "+
			"and no token or source names it. Its telemetry is refused."+
			" If the vid was a mistake: carstate forget VID --allow, once it is erased")
	}
	return r, err
}

type roadsCommand struct {
	Forget roadsForget `cmd:"" help:"Discard what is known of the roads in a box, for example after a source has lied."`
}

type roadsForget struct {
	sureFlags
	Box string `arg:"" help:"west,south,east,north in degrees. If it begins with a minus, write -- before it."`
}

func (c *roadsForget) Run(ctx context.Context, w streams) error {
	return c.askIfSure(ctx, w, func(a *client.Client) (any, error) { return a.ForgetRoads(ctx, c.Box) },
		"The speeds of all roads in this box will be learned again, which takes days. Forget them?")
}
