package main

import (
	"context"
	"fmt"

	"example.org/carstate/internal/store/local"
)

type checkCommand struct {
	Dir  string `arg:"" help:"The data directory. Stop its service first. Nothing in it is changed."`
	JSON bool   `name:"json" help:"Print the result as one JSON value and nothing else."`
}

func (c *checkCommand) Run(ctx context.Context, w streams) error {
	found, err := local.Check(ctx, nil, c.Dir)
	if len(found) > 0 {
		if err := w.show(found); err != nil {
			return err
		}
	}
	if err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintf(w.err, "%s: everything can be read\n", c.Dir)
	return err
}
