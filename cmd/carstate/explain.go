package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"carstate/internal/admin/client"
	"carstate/internal/ops"
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
	return ask(c, w, func(client *client.Client) (ops.VehicleRecord, error) {
		return client.Vehicle(ctx, id)
	}, func(v ops.VehicleRecord) error {
		if err := printVerdict(w.out, "driving", v.AskedAt, v.Driving); err != nil {
			return err
		}
		if err := printVerdict(w.out, "throttle", v.AskedAt, v.Throttle); err != nil {
			return err
		}
		fmt.Fprintln(w.out, "newest readings")
		t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
		for _, r := range v.Readings {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", r.Signal, r.InWords(), ago(v.AskedAt, &r.Time))
		}
		return t.Flush()
	})
}

func printVerdict(w io.Writer, what string, now time.Time, v ops.VerdictRecord) error {
	switch {
	case v.Verdict == "":
		fmt.Fprintf(w, "%s: no verdict (%s)\n", what, outcomeInWords(v.Outcome))
	case v.Outcome != "answered":
		fmt.Fprintf(w, "%s: %s (%s), but a query gets no answer: %s\n", what, v.Verdict, v.Value, outcomeInWords(v.Outcome))
	default:
		fmt.Fprintf(w, "%s: %s (%s), as of %s\n", what, v.Verdict, v.Value, ago(now, v.Time))
	}
	fmt.Fprintf(w, "  %s\n", v.Text)
	if v.Rule != "" {
		fmt.Fprintf(w, "  rule %s, version %d\n", v.Rule, v.Version)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range v.Telling() {
		fmt.Fprintf(t, "    %s\t%s\t%s\t%s\n", f.Name, f.InWords(), f.LimitInWords(), ago(now, f.Time))
	}
	if n := v.Silent(); n > 0 {
		fmt.Fprintf(t, "    measures that only --json shows: %d\n", n)
	}
	fmt.Fprintln(t)
	return t.Flush()
}
