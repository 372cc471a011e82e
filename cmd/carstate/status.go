package main

import (
	"context"
	"errors"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/admin/wire"
)

type statusCommand struct{ askFlags }

func (c *statusCommand) Run(ctx context.Context, w streams) error {
	var status wire.Status
	err := c.ask(w, func(client *client.Client) (_ any, err error) {
		status, err = client.Status(ctx)
		return status, err
	})
	if err == nil && !status.Ready {
		return errors.New("the node is not ready: " + status.Reason)
	}
	return err
}
