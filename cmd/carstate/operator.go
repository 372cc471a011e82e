package main

import (
	"context"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
)

type operatorCommand struct {
	Add            operatorAdd      `cmd:"" help:"Add a person who runs the service; their key is shown only once."`
	List           operatorList     `cmd:"" help:"List all operators."`
	Rotate         operatorRotate   `cmd:"" help:"Give an operator a new key; the old one becomes invalid at once."`
	Remove         operatorRemove   `cmd:"" help:"Remove an operator, their key and their sessions, at once."`
	RotateAdminKey adminKeyRotation `cmd:"" help:"Replace the admin key in the data directory; the old one becomes invalid at once."`
	BackupKey      backupKeyCommand `cmd:"" help:"Print the backup key of this service, which a restore into another service needs."`
}

type operatorAdd struct {
	askFlags
	ReadOnly bool   `help:"The key reads what an operator sees, and changes nothing: for Grafana, QGIS and the like."`
	Name     string `arg:"" help:"The operator's name, as the audit will have it: letters, digits, '-' and '_'."`
}

func (c *operatorAdd) Run(ctx context.Context, w streams) error {
	if err := access.CheckName(access.OperatorKind, c.Name); err != nil {
		return usageError("%v", err)
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.AddOperator(ctx, c.Name, c.ReadOnly) })
}

type operatorList struct{ askFlags }

func (c *operatorList) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(a *client.Client) (any, error) { return a.Operators(ctx) })
}

type operatorRotate struct {
	sureFlags
	Name string `arg:"" help:"The operator's name."`
}

func (c *operatorRotate) Run(ctx context.Context, w streams) error {
	return c.askIfSure(ctx, w, func(a *client.Client) (any, error) { return a.RotateOperator(ctx, c.Name) },
		"The present key of operator %s becomes invalid at once. Rotate it?", c.Name)
}

type operatorRemove struct {
	sureFlags
	Name string `arg:"" help:"The operator's name."`
}

func (c *operatorRemove) Run(ctx context.Context, w streams) error {
	return c.askIfSure(ctx, w, func(a *client.Client) (any, error) { return a.RemoveOperator(ctx, c.Name) },
		"The key and the sessions of operator %s end at once. Remove the operator?", c.Name)
}

type adminKeyRotation struct{ sureFlags }

func (c *adminKeyRotation) Run(ctx context.Context, w streams) error {
	return c.askIfSure(ctx, w, func(a *client.Client) (any, error) { return a.RotateAdminKey(ctx) },
		"The present admin key and its sessions end at once. Replace it?")
}

type backupKeyCommand struct{ askFlags }

func (c *backupKeyCommand) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(a *client.Client) (any, error) { return a.BackupKey(ctx) })
}
