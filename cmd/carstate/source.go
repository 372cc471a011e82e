package main

import (
	"context"
	"fmt"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/admin/wire"
)

type sourceCommand struct {
	Add    sourceAdd    `cmd:"" help:"Add a car or a gateway; its key is shown only once."`
	List   sourceList   `cmd:"" help:"List all sources."`
	Show   sourceShow   `cmd:"" help:"Show one source."`
	Change sourceChange `cmd:"" help:"Change the vehicles, the rate or the expiry of a source, or whether it is strict."`
	Rotate sourceRotate `cmd:"" help:"Give a source a new key; the old one stays valid for a while."`
	Remove sourceRemove `cmd:"" help:"Remove a source, at once."`
}

type sourceAdd struct {
	askFlags
	Name     string `arg:"" help:"The source's name, also its MQTT user name: letters, digits, '-' and '_'."`
	Vehicles string `required:"" placeholder:"all|VID,…|@FILE" help:"Vehicles that it sends telemetry for, at most 10,000 by name; a file has one vid on each line."`
	Rate     string `placeholder:"N/s|none" help:"Maximum rate of samples, as N/s, N/min or N/h, or none. By default, a source for all vehicles has none, and another one 10/s for each of its vehicles after bursts of 36,000."`
	Expires  string `default:"never" placeholder:"90d|never" help:"How long its key is valid (${default})."`
	Strict   bool   `help:"Refuse a sample that has a signal of unknown name or a value that cannot be used. By default only these are ignored."`
	formatFlags
	TrustedCrowd *bool  `env:"-" negatable:"" help:"Each of its cars counts on roads; --no-trusted-crowd: all of them count as one, because the holder of its key could invent cars. By default a source for all vehicles is trusted."`
	OnChange     string `placeholder:"auto|15m|0" help:"How long a speed holds that is sent only when it changes, while other readings of the car arrive; 0: never. By default such a source is recognized, and a speed holds for 30 min."`
}

func (c *sourceAdd) Run(ctx context.Context, w streams) error {
	if err := access.CheckName(access.SourceKind, c.Name); err != nil {
		return usageError("%v", err)
	}
	r := access.Credential{Name: c.Name, Strict: c.Strict, TrustedCrowd: c.TrustedCrowd}
	var err error
	if r.Vehicles, err = parseVehicles(c.Vehicles); err != nil {
		return fmt.Errorf("--vehicles: %w", err)
	}
	if r.Rate, err = access.ParseRate(c.Rate); err != nil {
		return usageError("--rate: %v", err)
	}
	if r.Expires, err = lifetime(c.Expires, time.Now()); err != nil {
		return err
	}
	if r.OnChange, err = access.ParseOnChange(c.OnChange); err != nil {
		return usageError("--on-change: %v", err)
	}
	if r.Format, err = c.formatFlags.parse(); err != nil {
		return err
	}
	return c.ask(w, func(a *client.Client) (any, error) {
		added, err := a.AddSource(ctx, r)
		return struct {
			wire.AddedSource
			Expires time.Time `json:"-"` // for the text alone
		}{added, r.Expires}, err
	})
}

type sourceList struct{ askFlags }

func (c *sourceList) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(a *client.Client) (any, error) { return a.Sources(ctx) })
}

type sourceShow struct {
	askFlags
	Name string `arg:"" help:"The source's name."`
}

func (c *sourceShow) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(a *client.Client) (any, error) { return a.Source(ctx, c.Name) })
}

type sourceChange struct {
	sureFlags
	Name string `arg:"" help:"The source's name."`
	changeFlags
	Strict       *bool  `env:"-" negatable:"" help:"Refuse a sample that has a signal of unknown name or a value that cannot be used; --no-strict: ignore only these."`
	TrustedCrowd *bool  `env:"-" negatable:"" help:"Each of its cars counts on roads; --no-trusted-crowd: all of them count as one."`
	OnChange     string `env:"-" placeholder:"auto|15m|0" help:"How long a speed holds that is sent only when it changes."`
	formatFlags
}

func (c *sourceChange) Run(ctx context.Context, w streams) error {
	to, err := c.change(time.Now())
	if err != nil {
		return err
	}
	to.Strict, to.TrustedCrowd = c.Strict, c.TrustedCrowd
	if c.OnChange != "" {
		onChange, err := access.ParseOnChange(c.OnChange)
		if err != nil {
			return usageError("--on-change: %v", err)
		}
		to.OnChange = &onChange
	}
	if c.formatFlags.given() {
		mapping, err := c.formatFlags.parse()
		if err != nil {
			return err
		}
		to.Format = &mapping
	}
	if to == (access.Change{}) {
		return usageError("say what to change: --vehicles, --rate, --expires, --strict, --trusted-crowd, --on-change or --format")
	}
	if to.Vehicles != nil && to.Vehicles.All() {
		if err := c.sure(ctx, w, "Source %s may send for every vehicle from now on, and its list is not kept. Change it?",
			c.Name); err != nil {
			return err
		}
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.ChangeSource(ctx, c.Name, to) })
}

type sourceRotate struct {
	sureFlags
	Name    string `arg:"" help:"The source's name."`
	Overlap string `default:"24h" placeholder:"24h|7d|0s" help:"How long the old key stays valid (${default})."`
}

func (c *sourceRotate) Run(ctx context.Context, w streams) error {
	d, err := overlap(c.Overlap)
	if err == nil && d == 0 {
		err = c.sure(ctx, w, "All earlier keys of source %s become invalid at once. Rotate it?", c.Name)
	}
	if err != nil {
		return err
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.RotateSource(ctx, c.Name, d) })
}

type sourceRemove struct {
	sureFlags
	Name string `arg:"" help:"The source's name."`
}

func (c *sourceRemove) Run(ctx context.Context, w streams) error {
	return c.askIfSure(ctx, w, func(a *client.Client) (any, error) { return a.RemoveSource(ctx, c.Name) },
		"The key of source %s becomes invalid at once and permanently. Remove it?", c.Name)
}
