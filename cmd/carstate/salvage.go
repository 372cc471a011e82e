package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"carstate/internal/store/local"
)

type salvageCommand struct {
	Damaged string `arg:"" help:"The damaged data directory. The service on it is stopped; nothing in it is changed."`
	New     string `arg:"" help:"The data directory to make, which must not exist."`
	JSON    bool   `name:"json" help:"Print what was found as one JSON value and nothing else."`
}

// Help returns what --help shows.
func (*salvageCommand) Help() string {
	return `Copies what is good of a damaged data directory of one machine into a new one, and lists what
is not. A backup is better where there is one: an older record may stand in the place of one
that is lost, such as a token that was revoked or a vehicle that was forgotten.

Example:
  carstate salvage /var/lib/carstate.damaged /var/lib/carstate`
}

// Run copies the intact records and reports what it found.
func (c *salvageCommand) Run(ctx context.Context, w streams) error {
	found, err := local.Salvage(ctx, nil, c.Damaged, c.New)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(w.out, found)
	}
	table := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tKEPT\tDAMAGED\tUNREADABLE PARTS")
	whole := true
	for _, f := range found {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", f.What, f.Kept, f.Damaged, f.Unreadable)
		whole = whole && f.Damaged == 0 && f.Unreadable == 0
	}
	if err := table.Flush(); err != nil {
		return err
	}
	advice := "everything was read"
	if !whole {
		advice = "look through tokens, sources and operators for what was revoked, and forget again what was forgotten since the last backup"
	}
	_, err = fmt.Fprintf(w.err, "%s: %s\n", c.New, advice)
	return err
}
