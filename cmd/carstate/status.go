package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"carstate/internal/admin/client"
	"carstate/internal/admin/wire"
)

type statusCommand struct{ askFlags }

// Run prints the status of the service. It returns an error if the node is not ready.
func (c *statusCommand) Run(ctx context.Context, w streams) error {
	var status wire.Status
	err := ask(c, w, func(client *client.Client) (_ wire.Status, err error) {
		status, err = client.Status(ctx)
		return status, err
	}, func(s wire.Status) error { return printStatus(w, s) })
	if err == nil && !status.Ready {
		return errors.New("the node is not ready: " + status.Reason)
	}
	return err
}

func printStatus(w streams, s wire.Status) error {
	health := "ready"
	if !s.Ready {
		health = "not ready: " + s.Reason
	}
	if len(s.NewerRecords) > 0 {
		health += "; upgrade this node: it cannot read what a newer version stored in " +
			strings.Join(s.NewerRecords, ", ")
	}
	figure := func(format string, v *float64, unit float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v/unit)
	}
	vehicles := figure("%.0f", s.Vehicles, 1)
	if s.VehiclesLimit != nil {
		vehicles += " of at most " + figure("%.0f", s.VehiclesLimit, 1)
	}
	noBackup := "none in the newest events of the audit"
	if s.NeverBackedUp {
		noBackup = "no backup yet"
	}
	t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"health", health},
		{"version", s.Version + " (this command: " + version + ")"},
		{"age of feed", figure("%.1f s", s.FeedAgeSeconds, 1)},
		{"vehicles", vehicles},
		{"tokens", figure("%.0f", s.Tokens, 1)},
		{"sources", figure("%.0f", s.Sources, 1)},
		{"operators", fmt.Sprint(s.Operators)},
		{"store", figure("%.1f MiB", s.StoreBytes, 1<<20)},
		{"disk free", figure("%.1f GiB", s.DiskFreeBytes, 1<<30)},
		{"last backup", day(s.LastBackupAt, noBackup)},
	} {
		fmt.Fprintf(t, "%s\t%s\n", line[0], line[1])
	}
	return t.Flush()
}
