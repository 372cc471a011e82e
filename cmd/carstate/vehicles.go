package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"carstate/internal/admin/client"
	"carstate/internal/ops"
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

// Run prints a page of the list of vehicles, or exports the whole list.
func (c *vehiclesCommand) Run(ctx context.Context, w streams) error {
	q := ops.VehicleQuery{
		Driving: c.Driving, Throttle: c.Throttle, Reason: c.Reason, Prefix: c.Prefix,
		Source: c.Source, Sort: c.Sort, Cursor: c.Cursor,
	}
	if c.Limit != nil {
		if q.Limit = *c.Limit; q.Limit < 1 || q.Limit > ops.MaxVehicles {
			return usageError("--limit must be a number from 1 to %d", ops.MaxVehicles)
		}
	}
	if err := q.Check(); err != nil {
		return usageError("--%v", err) // the error begins with the name of a field, as that of its flag
	}
	if c.exports() {
		if c.JSON {
			return usageError("--json prints one page: leave out --format")
		}
		return c.export(ctx, w, "/v1/vehicles", q.Values())
	}
	return ask(askFlags{c.adminFlags, jsonFlag{c.JSON}}, w, func(client *client.Client) (ops.VehiclePage, error) {
		return client.Vehicles(ctx, q)
	}, func(page ops.VehiclePage) error {
		t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
		if len(page.Vehicles) > 0 {
			fmt.Fprintln(t, "VID\tDRIVING\tREAD\tTHROTTLE\tREAD")
		}
		for _, v := range page.Vehicles {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", v.VID, inShort(v.Driving), since(page.AskedAt, v.Driving),
				inShort(v.Throttle), since(page.AskedAt, v.Throttle))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(w.err, "%d of %d vehicles match.\n", page.Matched, page.Known)
		if page.Matched == 0 && c.Prefix != "" {
			fmt.Fprintln(w.err, "In a vid, a capital letter and a small one are different.")
		}
		if page.Next != "" {
			fmt.Fprintf(w.err, "The next page: repeat the command with --cursor %s\n", page.Next)
		}
		return nil
	})
}

// inShort returns the verdict in words, or the reason why there is none, such as "stale".
func inShort(v ops.ListedVerdict) string {
	if v.Outcome == "answered" {
		return v.Verdict
	}
	return outcomeInWords(v.Outcome)
}

// outcomeInWords returns an outcome as text for the table: "not_driving" becomes "not driving".
func outcomeInWords(outcome string) string { return strings.ReplaceAll(outcome, "_", " ") }

func since(now time.Time, v ops.ListedVerdict) string {
	if v.Time == nil {
		return "never"
	}
	return ago(now, v.Time)
}
