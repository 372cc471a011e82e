package main

import (
	"context"
	"fmt"
	"time"
)

// healthCommand is for a container image without a shell.
type healthCommand struct {
	listenerFlags
	Live    bool          `help:"Check whether a restart would help (/healthz), not whether the node does its work (/readyz)."`
	Timeout time.Duration `default:"5s" help:"How long to wait for the answer, such as 5s (${default})."`
}

func (c *healthCommand) Run(ctx context.Context, w streams) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	admin, err := c.unauthenticated()
	if err != nil {
		return err
	}
	line, err := admin.Probe(ctx, c.Live)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w.out, line)
	return err
}
