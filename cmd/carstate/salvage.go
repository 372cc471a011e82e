package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"example.org/carstate/internal/store/local"
)

type salvageCommand struct {
	Damaged string `arg:"" help:"The damaged data directory. Stop its service first. Nothing in it is changed."`
	New     string `arg:"" help:"The data directory to create, which must not exist."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value and nothing else."`
}

func (c *salvageCommand) Run(ctx context.Context, w streams) error {
	syscall.Umask(0o077) // Pebble would make directories that others can read
	found, err := local.Salvage(ctx, nil, c.Damaged, c.New)
	if err != nil {
		return err
	}
	if err := w.show(found); err != nil || c.JSON {
		return err
	}
	advice := "everything was read"
	if slices.ContainsFunc(found, func(f local.Salvaged) bool { return f.Damaged > 0 || f.Unreadable > 0 }) {
		advice = "check tokens, sources and operators for those that had been revoked or removed, " +
			"and forget again the vehicles that were forgotten since the last backup"
	}
	_, err = fmt.Fprintf(w.err, "%s: %s\n", c.New, advice)
	return err
}
