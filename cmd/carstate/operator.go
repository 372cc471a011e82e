package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"carstate/internal/access"
	"carstate/internal/admin/client"
	"carstate/internal/admin/wire"
	"carstate/internal/ops"
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
	adminFlags
	Name string `arg:"" help:"The operator's name, as the audit will have it: letters, digits, '-' and '_'."`
	JSON bool   `name:"json" help:"Print one JSON value and nothing else."`
}

// Run adds an operator.
func (c *operatorAdd) Run(ctx context.Context, w streams) error {
	if err := access.CheckName(access.OperatorKind, c.Name); err != nil {
		return usageError("%v", err)
	}
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (wire.OperatorKey, error) {
		return client.AddOperator(ctx, c.Name)
	}, func(o wire.OperatorKey) error {
		_, err := fmt.Fprintf(w.out, "%s\n", o.Key)
		fmt.Fprintf(w.err, "This is the key of operator %s, shown only once.\n", o.Name)
		return err
	})
}

type operatorList struct {
	adminFlags
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run lists the operators.
func (c *operatorList) Run(ctx context.Context, w streams) error {
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) ([]ops.OperatorSummary, error) {
		return client.Operators(ctx)
	}, func(operators []ops.OperatorSummary) error {
		if len(operators) == 0 {
			_, err := fmt.Fprintln(w.out, "There is no operator but the holder of the admin key: carstate operator add NAME")
			return err
		}
		t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tADDED\tKEY SINCE")
		for _, o := range operators {
			since := o.RotatedAt
			if since == nil {
				since = &o.CreatedAt
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", o.Name, day(&o.CreatedAt, ""), day(since, ""))
		}
		return t.Flush()
	})
}

type operatorRotate struct {
	adminFlags
	Name string `arg:"" help:"The operator's name."`
	sureFlag
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run gives an operator a new key.
func (c *operatorRotate) Run(ctx context.Context, w streams) error {
	if err := c.sure(ctx, w, "The present key of operator %s becomes invalid at once. Rotate it?", c.Name); err != nil {
		return err
	}
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (wire.OperatorKey, error) {
		return client.RotateOperator(ctx, c.Name)
	}, func(o wire.OperatorKey) error {
		_, err := fmt.Fprintf(w.out, "%s\n", o.Key)
		fmt.Fprintf(w.err, "This is the new key of operator %s, shown only once. The old one is no longer valid.\n", o.Name)
		return err
	})
}

type operatorRemove struct {
	adminFlags
	Name string `arg:"" help:"The operator's name."`
	sureFlag
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run removes an operator.
func (c *operatorRemove) Run(ctx context.Context, w streams) error {
	if err := c.sure(ctx, w, "The key and the sessions of operator %s end at once. Remove the operator?",
		c.Name); err != nil {
		return err
	}
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (ops.OperatorSummary, error) {
		return client.RemoveOperator(ctx, c.Name)
	}, func(o ops.OperatorSummary) error {
		_, err := fmt.Fprintf(w.out, "operator %s is removed\n", o.Name)
		return err
	})
}

type adminKeyRotation struct {
	adminFlags
	sureFlag
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run replaces the admin key.
func (c *adminKeyRotation) Run(ctx context.Context, w streams) error {
	if err := c.sure(ctx, w, "The present admin key and its sessions end at once. Replace it?"); err != nil {
		return err
	}
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (wire.RotatedAdminKey, error) {
		return client.RotateAdminKey(ctx)
	}, func(r wire.RotatedAdminKey) error {
		_, err := fmt.Fprintf(w.out, "the new admin key is in %s\n", r.File)
		return err
	})
}

type backupKeyCommand struct {
	adminFlags
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run prints the service's backup key, which authenticates its backups.
func (c *backupKeyCommand) Run(ctx context.Context, w streams) error {
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (wire.BackupKey, error) {
		return client.BackupKey(ctx)
	}, func(k wire.BackupKey) error {
		_, err := fmt.Fprintf(w.out, "%s\n", k.Key)
		fmt.Fprintln(w.err, "This is the backup key of this service. Keep it apart from the backups.")
		return err
	})
}
