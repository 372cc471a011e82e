package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/netaddr"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/term"
	"example.org/carstate/internal/vehicle"
)

type adminFlags struct {
	DataDir string `default:"./carstate-data" placeholder:"DIR" help:"The service's data directory, which holds the admin key (${default})."`
	KeyFile string `placeholder:"FILE" help:"File with an operator's key, to use instead of the admin key."`
	listenerFlags
}

type listenerFlags struct {
	AdminAddr string `default:"127.0.0.1:8082" placeholder:"ADDR" help:"The service's admin listener (${default}); may be a URL."`
	AdminCA   string `name:"admin-ca" placeholder:"FILE" help:"Trust this certificate (PEM) of the admin listener in addition to the system's."`
}

func (f listenerFlags) unauthenticated() (*client.Client, error) {
	base := netaddr.BaseURL(f.AdminAddr)
	if _, err := url.Parse(base); err != nil || !strings.Contains(f.AdminAddr, "://") && !netaddr.Valid(f.AdminAddr) {
		return nil, usageError("--admin-addr must be an address such as 127.0.0.1:8082, or a URL")
	}
	trust, err := client.Trusting(f.AdminCA)
	return &client.Client{URL: base, HTTP: client.HTTPClient(trust)}, err
}

type listFlags struct {
	adminFlags
	Format string `enum:"table,csv,ndjson" default:"table" help:"table: a page for people; csv or ndjson: a file with all matches (${default})."`
}

func (f listFlags) exports() bool { return f.Format != "table" }

func (f listFlags) export(ctx context.Context, w streams, list string, query url.Values) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	return client.Export(ctx, w.out, list, query, f.Format)
}

func (f adminFlags) client() (*client.Client, error) {
	c, err := f.unauthenticated()
	switch {
	case err != nil:
	case f.KeyFile != "":
		c.Flag = "--key-file"
		c.Key, err = client.ReadKey(f.KeyFile)
	default:
		c.Key, err = ops.LoadKey(f.DataDir)
	}
	return c, err
}

// askFlags are of a command with one call of the admin API.
type askFlags struct {
	adminFlags
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

func (f adminFlags) ask(w streams, call func(*client.Client) (any, error)) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	v, err := call(client)
	if err != nil {
		return err
	}
	return w.show(v)
}

type sureFlags struct {
	askFlags
	Yes bool `env:"-" help:"Do not ask for confirmation. Without a terminal the command never asks."`
}

func (f sureFlags) asks() bool { return !f.Yes && term.Terminal(os.Stdin) != nil }

func (f sureFlags) sure(ctx context.Context, w streams, format string, args ...any) error {
	if !f.asks() {
		return nil
	}
	return term.Confirm(ctx, os.Stdin, w.err, fmt.Sprintf(format, args...))
}

func (f sureFlags) askIfSure(
	ctx context.Context, w streams, call func(*client.Client) (any, error), question string, args ...any,
) error {
	if err := f.sure(ctx, w, question, args...); err != nil {
		return err
	}
	return f.ask(w, call)
}

func parseVehicles(s string) (access.Vehicles, error) {
	if s == "all" {
		return access.AllVehicles(), nil
	}
	if strings.EqualFold(s, "all") {
		return access.Vehicles{}, usageError("write all in small letters, or list vids")
	}
	ids, err := parseVIDs(s)
	return access.VehicleSet(ids...), err
}

// parseVIDs parses "VID,VID", or "@FILE" with a vid on each line.
func parseVIDs(s string) ([]vehicle.ID, error) {
	where, parts := "vehicle", strings.Split(s, ",")
	if name, ok := strings.CutPrefix(s, "@"); ok {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("the list of vehicles cannot be read: %w", err)
		}
		where, parts = "line", strings.Split(strings.TrimRight(string(text), "\r\n"), "\n")
	}
	ids := make([]vehicle.ID, 0, len(parts))
	for i, p := range parts {
		p = strings.TrimSpace(p)
		if p == "" && where == "line" {
			continue
		}
		id, err := vehicle.ParseReportingID(p)
		if err != nil {
			return nil, usageError("%s %d of the list: %v", where, i+1, err)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, usageError("the list names no vehicle")
	}
	return ids, nil
}

// lifetime returns the time of expiry; zero is never.
func lifetime(s string, now time.Time) (time.Time, error) {
	if s == "never" {
		return time.Time{}, nil
	}
	d, ok := span(s)
	if !ok || d <= 0 {
		return time.Time{}, usageError("--expires must be never, a number of days such as 90d, or a duration such as 12h")
	}
	return now.Add(d), nil
}

func overlap(s string) (time.Duration, error) {
	d, ok := span(s)
	if !ok || access.CheckOverlap(d) != nil || d%time.Second != 0 {
		return 0, usageError("--overlap must be a duration in whole seconds such as 24h, or a number of days such " +
			"as 7d: 0s to 90d")
	}
	return d, nil
}

// span parses a number of days such as 90d, at most 36,500, or a duration. Both may be negative.
func span(s string) (d time.Duration, ok bool) {
	if text, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.Atoi(text)
		return time.Duration(days) * 24 * time.Hour, err == nil && max(days, -days) <= 36500
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

func optionalVIDs(s string) ([]vehicle.ID, error) {
	if s == "" {
		return nil, nil
	}
	return parseVIDs(s)
}
