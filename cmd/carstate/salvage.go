package main

import (
	"context"
	"fmt"
	"syscall"
	"text/tabwriter"
	"time"

	"carstate/internal/store/local"
)

type salvageCommand struct {
	Damaged string `arg:"" help:"The damaged data directory. Stop its service first. Nothing in it is changed."`
	New     string `arg:"" help:"The data directory to create, which must not exist."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value and nothing else."`
}

// Run copies the intact records of a damaged data directory into a new one. For each kind of
// record, it prints how many were intact and how many were damaged, and the period whose records
// are lost.
func (c *salvageCommand) Run(ctx context.Context, w streams) error {
	syscall.Umask(0o077) // Pebble would make directories that others can read
	found, err := local.Salvage(ctx, nil, c.Damaged, c.New)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(w.out, found)
	}
	table := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tKEPT\tDAMAGED\tUNREADABLE PARTS\tLOST AFTER\tLOST BEFORE")
	whole := true
	for _, f := range found {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%s\n", f.What, f.Kept, f.Damaged, f.Unreadable,
			lostTime(f.LostFrom), lostTime(f.LostUntil))
		whole = whole && f.Damaged == 0 && f.Unreadable == 0
	}
	if err := table.Flush(); err != nil {
		return err
	}
	advice := "everything was read"
	if !whole {
		advice = "check tokens, sources and operators for those that had been revoked or removed, " +
			"and forget again the vehicles that were forgotten since the last backup"
	}
	_, err = fmt.Fprintf(w.err, "%s: %s\n", c.New, advice)
	return err
}

// lostTime returns t as text in UTC, for the table that the command prints. The time t is the
// beginning or the end of the period whose records are lost. If t is zero, the period has no such
// bound, and lostTime returns "-".
func lostTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
