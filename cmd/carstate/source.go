package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin/client"
	"carstate/internal/admin/wire"
	"carstate/internal/inwords"
	"carstate/internal/ops"
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
	adminFlags
	Name     string `arg:"" help:"The source's name, also its MQTT user name: letters, digits, '-' and '_'."`
	Vehicles string `required:"" placeholder:"all|VID,…|@FILE" help:"Vehicles that it sends telemetry for; a file has one vid on each line."`
	Rate     string `placeholder:"N/s" help:"Maximum rate of samples, as N/s, N/min or N/h; no limit by default."`
	Strict   bool   `help:"Refuse a sample that has a signal of unknown name. By default the signal is ignored."`
	JSON     bool   `name:"json" help:"Print one JSON value and nothing else."`
}

// Run adds a source.
func (c *sourceAdd) Run(ctx context.Context, w streams) error {
	if err := access.CheckName(access.SourceKind, c.Name); err != nil {
		return usageError("%v", err)
	}
	v, err := parseVehicles(c.Vehicles)
	if err != nil {
		return fmt.Errorf("--vehicles: %w", err)
	}
	rate, err := access.ParseRate(c.Rate)
	if err != nil {
		return usageError("--rate: %v", err)
	}
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (wire.AddedSource, error) {
		return client.AddSource(ctx, access.Request{Name: c.Name, Vehicles: v, Rate: rate, Strict: c.Strict})
	}, func(s wire.AddedSource) error {
		_, err := fmt.Fprintf(w.out, "%s\n", s.Key)
		rate := inwords.RateLimit(s.Rate)
		fmt.Fprintf(w.err, "This is the key of source %s, shown only once. Its rate: %s. Unknown signals: %s.\n", s.Name,
			rate, unknownSignals(s.Strict))
		return err
	})
}

type sourceList struct {
	adminFlags
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run lists the sources.
func (c *sourceList) Run(ctx context.Context, w streams) error {
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) ([]ops.SourceSummary, error) {
		return client.Sources(ctx)
	}, func(sources []ops.SourceSummary) error {
		if len(sources) == 0 {
			_, err := fmt.Fprintln(w.out, "There is no source yet: carstate source add NAME --vehicles all")
			return err
		}
		t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tVEHICLES\tRATE\tACCEPTED\tREFUSED\tLAST REFUSED\tADDED\tEXPIRES")
		for _, x := range sources {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", x.Name, count(x.VehicleCount), inwords.RateLimit(x.Rate),
				x.Seen.Accepted, x.Seen.Refused.Total(), lastRefused(x.Seen),
				day(&x.CreatedAt, ""), day(x.ExpiresAt, "never"))
		}
		return t.Flush()
	})
}

// unknownSignals returns a text that says what the service does with signals whose names it does
// not know. The parameter strict is the setting --strict of the source that sends the signals.
func unknownSignals(strict bool) string {
	if strict {
		return "a sample that has one is refused"
	}
	return "ignored"
}

// lastRefused returns a text that says when and why a sample of a source was last refused.
func lastRefused(s ops.SourceActivity) string {
	if s.LastRefusedAt == nil {
		return "-"
	}
	return day(s.LastRefusedAt, "") + ", " + s.LastRefusedReason
}

type sourceShow struct {
	adminFlags
	Name string `arg:"" help:"The source's name."`
	JSON bool   `name:"json" help:"Print one JSON value and nothing else."`
}

// Run shows a source.
func (c *sourceShow) Run(ctx context.Context, w streams) error {
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (ops.SourceRecord, error) {
		return client.Source(ctx, c.Name)
	}, func(s ops.SourceRecord) error {
		line := func(name, format string, values ...any) {
			fmt.Fprintf(w.out, "%-17s"+format+"\n", append([]any{name}, values...)...)
		}
		line("source", "%s", s.Name)
		line("vehicles", "%s", someVehicles(s.Vehicles))
		line("rate", "%s", inwords.RateLimit(s.Rate))
		line("unknown signals", "%s", unknownSignals(s.Strict))
		line("added", "%s", day(&s.CreatedAt, ""))
		line("expires", "%s", day(s.ExpiresAt, "never"))
		line("removed", "%s", day(s.RemovedAt, "-"))
		for _, until := range s.EarlierUntil {
			line("replaced", "an earlier key is valid until %s", day(&until, ""))
		}
		fmt.Fprintln(w.out, "\nOn this node since it started:")
		line("last seen", "%s", day(s.Seen.LastSeenAt, "-"))
		line("last refused", "%s", lastRefused(s.Seen))
		if s.Seen.LastRefusedText != "" {
			line("  in words", "%s", s.Seen.LastRefusedText)
		}
		line("accepted", "%d samples", s.Seen.Accepted)
		line("refused", "%d samples", s.Seen.Refused.Total())
		for _, why := range slices.Sorted(maps.Keys(s.Seen.Refused)) {
			line("  "+why, "%d", s.Seen.Refused[why])
		}
		if n := s.Seen.RefusedKeys.Total(); n > 0 {
			line("refused keys", "%d", n)
		}
		for _, why := range slices.Sorted(maps.Keys(s.Seen.RefusedKeys)) {
			line("  "+why, "%d", s.Seen.RefusedKeys[why])
		}
		_, err := fmt.Fprintf(w.out, "ignored signals  %d\n", s.Seen.IgnoredSignals)
		for _, name := range slices.Sorted(maps.Keys(s.Seen.IgnoredByName)) {
			fmt.Fprintf(w.out, "  %s  %d\n", name, s.Seen.IgnoredByName[name])
		}
		if n := s.Seen.IgnoredOthers(); n > 0 && len(s.Seen.IgnoredByName) > 0 {
			fmt.Fprintf(w.out, "  others  %d\n", n)
		}
		return err
	})
}

type sourceChange struct {
	adminFlags
	Name string `arg:"" help:"The source's name."`
	changeFlags
	Strict *bool `env:"-" negatable:"" help:"Refuse a sample that has a signal of unknown name; --no-strict: ignore the signal."`
	sureFlag
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run changes a source.
func (c *sourceChange) Run(ctx context.Context, w streams) error {
	to, err := c.change(time.Now())
	if err != nil {
		return err
	}
	to.Strict = c.Strict
	if to == (access.Change{}) {
		return usageError("say what to change: --vehicles, --rate, --expires, --strict or --no-strict")
	}
	if to.Vehicles != nil && to.Vehicles.All() {
		if err := c.sure(ctx, w, "Source %s may send for every vehicle from now on, and its list is not kept. Change it?",
			c.Name); err != nil {
			return err
		}
	}
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (ops.SourceSummary, error) {
		return client.ChangeSource(ctx, c.Name, to)
	}, func(s ops.SourceSummary) error {
		_, err := fmt.Fprintf(w.out, "source %s now has vehicles %s, rate %s, expires %s; unknown signals: %s\n",
			s.Name, count(s.VehicleCount), inwords.RateLimit(s.Rate), day(s.ExpiresAt, "never"), unknownSignals(s.Strict))
		return err
	})
}

type sourceRotate struct {
	adminFlags
	Name    string `arg:"" help:"The source's name."`
	Overlap string `default:"24h" placeholder:"24h|7d|0s" help:"How long the old key stays valid (${default})."`
	sureFlag
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run gives a source a new key.
func (c *sourceRotate) Run(ctx context.Context, w streams) error {
	d, err := overlap(c.Overlap)
	if err == nil && d == 0 {
		err = c.sure(ctx, w, "All earlier keys of source %s become invalid at once. Rotate it?", c.Name)
	}
	if err != nil {
		return err
	}
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (wire.RotatedSource, error) {
		return client.RotateSource(ctx, c.Name, d)
	}, func(s wire.RotatedSource) error {
		_, err := fmt.Fprintf(w.out, "%s\n", s.Key)
		fmt.Fprintf(w.err, "This is the new key of source %s, shown only once. %s\n", s.Name, oldUntil(s.EarlierUntil))
		return err
	})
}

type sourceRemove struct {
	adminFlags
	Name string `arg:"" help:"The source's name."`
	sureFlag
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Run removes a source.
func (c *sourceRemove) Run(ctx context.Context, w streams) error {
	if err := c.sure(ctx, w, "The key of source %s becomes invalid at once and permanently. Remove it?",
		c.Name); err != nil {
		return err
	}
	return ask(c.adminFlags, c.JSON, w, func(client *client.Client) (ops.SourceSummary, error) {
		return client.RemoveSource(ctx, c.Name)
	}, func(s ops.SourceSummary) error {
		_, err := fmt.Fprintf(w.out, "source %s is removed\n", s.Name)
		return err
	})
}
