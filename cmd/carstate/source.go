package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	Expires  string `default:"never" placeholder:"90d|never" help:"How long its key is valid (${default})."`
	Strict   bool   `help:"Refuse a sample that has a signal of unknown name. By default the signal is ignored."`
	jsonFlag
}

// Run adds a source, and prints the source's key to standard output and its settings to standard
// error.
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
	expires, err := lifetime(c.Expires, time.Now())
	if err != nil {
		return err
	}
	until := "never"
	if !expires.IsZero() {
		until = day(&expires, "")
	}
	return tell(c, w, func(client *client.Client) (wire.AddedSource, error) {
		return client.AddSource(ctx, access.Request{Name: c.Name, Vehicles: v, Rate: rate, Expires: expires, Strict: c.Strict})
	}, func(s wire.AddedSource) (string, string) {
		return s.Key, fmt.Sprintf("This is the key of source %s, shown only once. Its rate: %s. It expires: %s. Unknown "+
			"signals: %s.", s.Name, inwords.RateLimit(s.Rate), until, unknownSignals(s.Strict))
	})
}

type sourceList struct{ askFlags }

// Run lists the sources.
func (c *sourceList) Run(ctx context.Context, w streams) error {
	return list(c, w, func(a *client.Client) ([]ops.SourceSummary, error) { return a.Sources(ctx) },
		"There is no source yet: carstate source add NAME --vehicles all",
		"NAME\tVEHICLES\tRATE\tACCEPTED\tREFUSED\tLAST REFUSED\tADDED\tEXPIRES", func(x ops.SourceSummary) []string {
			return []string{x.Name, count(x.VehicleCount), inwords.RateLimit(x.Rate), fmt.Sprint(x.Seen.Accepted),
				fmt.Sprint(x.Seen.Refused.Total()), lastRefused(x.Seen), day(&x.CreatedAt, ""), day(x.ExpiresAt, "never")}
		})
}

// unknownSignals returns a short text, such as "ignored", that says what the service does with
// signals whose names it does not know. The parameter strict is the setting --strict of the source
// that sends the signals.
func unknownSignals(strict bool) string {
	if strict {
		return "a sample that has one is refused"
	}
	return "ignored"
}

// lastRefused returns a text that says when and why the key or a sample of a source was last
// refused. If neither ever was, it returns "-".
func lastRefused(s ops.SourceActivity) string {
	if s.LastRefusedAt == nil {
		return "-"
	}
	return day(s.LastRefusedAt, "") + ", " + s.LastRefusedReason
}

type sourceShow struct {
	askFlags
	Name string `arg:"" help:"The source's name."`
}

// Run shows a source: its settings, and what the node that answers has counted for it.
func (c *sourceShow) Run(ctx context.Context, w streams) error {
	return ask(c, w, func(client *client.Client) (ops.SourceRecord, error) {
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
	jsonFlag
}

// Run changes those settings of a source whose flags are given; without such a flag, it returns a
// usage error. At a terminal, the user must confirm a change to all vehicles.
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
	return tell(c, w, func(a *client.Client) (ops.SourceSummary, error) { return a.ChangeSource(ctx, c.Name, to) },
		func(s ops.SourceSummary) (string, string) {
			return fmt.Sprintf("source %s now has vehicles %s, rate %s, expires %s; unknown signals: %s", s.Name,
				count(s.VehicleCount), inwords.RateLimit(s.Rate), day(s.ExpiresAt, "never"), unknownSignals(s.Strict)), ""
		})
}

type sourceRotate struct {
	adminFlags
	Name    string `arg:"" help:"The source's name."`
	Overlap string `default:"24h" placeholder:"24h|7d|0s" help:"How long the old key stays valid (${default})."`
	sureFlag
	jsonFlag
}

// Run gives a source a new key, and prints it. At a terminal, the user must confirm a rotation
// without overlap, because the earlier keys then end at once.
func (c *sourceRotate) Run(ctx context.Context, w streams) error {
	d, err := overlap(c.Overlap)
	if err == nil && d == 0 {
		err = c.sure(ctx, w, "All earlier keys of source %s become invalid at once. Rotate it?", c.Name)
	}
	if err != nil {
		return err
	}
	return tell(c, w, func(a *client.Client) (wire.RotatedSource, error) { return a.RotateSource(ctx, c.Name, d) },
		func(s wire.RotatedSource) (string, string) {
			return s.Key, fmt.Sprintf("This is the new key of source %s, shown only once. %s", s.Name, oldUntil(s.EarlierUntil))
		})
}

type sourceRemove struct {
	adminFlags
	Name string `arg:"" help:"The source's name."`
	sureFlag
	jsonFlag
}

// Run removes a source. At a terminal, the user must confirm this first.
func (c *sourceRemove) Run(ctx context.Context, w streams) error {
	if err := c.sure(ctx, w, "The key of source %s becomes invalid at once and permanently. Remove it?",
		c.Name); err != nil {
		return err
	}
	return tell(c, w, func(a *client.Client) (ops.SourceSummary, error) { return a.RemoveSource(ctx, c.Name) },
		func(s ops.SourceSummary) (string, string) { return "source " + s.Name + " is removed", "" })
}
