package main

import (
	"context"
	"strconv"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/ops"
)

type vehiclesCommand struct {
	listFlags
	Driving  string `placeholder:"STATE" help:"Only cars with this answer: normal, slow or jam."`
	Throttle string `placeholder:"STATE" help:"Only cars with this answer: normal or anomaly."`
	Reason   string `placeholder:"WHY" help:"Only cars without a driving verdict, for this reason: stale, not_driving or unknown."`
	Prefix   string `placeholder:"VID" help:"Only cars whose vid has this prefix."`
	Source   string `placeholder:"NAME" help:"Only cars that this source may report."`
	Sort     string `placeholder:"ORDER" help:"trouble (the default), newest or oldest."`
	Limit    *int   `placeholder:"N" help:"Maximum number of cars, 1 to 1000 (100)."`
	Cursor   string `placeholder:"TEXT" help:"Print the page after the one that ended with this cursor."`
	JSON     bool   `name:"json" help:"Print one page as one JSON value and nothing else."`
}

func (c *vehiclesCommand) Run(ctx context.Context, w streams) error {
	query := ops.VehicleQuery{
		Driving: c.Driving, Throttle: c.Throttle, Reason: c.Reason, Prefix: c.Prefix,
		Source: c.Source, Sort: c.Sort, Cursor: c.Cursor,
	}.Values()
	if c.Limit != nil {
		query.Set("limit", strconv.Itoa(*c.Limit))
	}
	q, err := ops.AskedVehicles(query)
	if err != nil {
		return usageError("--%v", err) // the error begins with the name of the flag
	}
	if c.exports() {
		if c.JSON {
			return usageError("--json prints one page: leave out --format")
		}
		return c.export(ctx, w, "/v1/vehicles", query)
	}
	return c.ask(w, func(a *client.Client) (any, error) {
		page, err := a.Vehicles(ctx, q)
		return struct {
			ops.VehiclePage
			Prefix string `json:"-"` // for the text alone
		}{page, c.Prefix}, err
	})
}
