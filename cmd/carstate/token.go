package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
)

type tokenCommand struct {
	Issue  tokenIssue  `cmd:"" help:"Issue a token; its secret is shown only once."`
	List   tokenList   `cmd:"" help:"List all tokens."`
	Show   tokenShow   `cmd:"" help:"Show one token."`
	Grant  tokenGrant  `cmd:"" help:"Add vehicles to a token, or remove some."`
	Change tokenChange `cmd:"" help:"Change the rate, the expiry or all vehicles of a token."`
	Rotate tokenRotate `cmd:"" help:"Give a token a new secret; the old one stays valid for a while."`
	Revoke tokenRevoke `cmd:"" help:"Revoke a token, at once and permanently."`
}

type tokenIssue struct {
	askFlags
	Developer  string   `required:"" placeholder:"NAME" help:"The developer who gets the token."`
	Operations []string `default:"car_driving_state,throttle_system" placeholder:"OP,…" help:"Operations that it may query (${default})."`
	Vehicles   string   `placeholder:"all|VID,…|@FILE" help:"Vehicles that it may query, at most 10,000 by name; a file has one vid on each line."`
	Expires    string   `default:"90d" placeholder:"90d|never" help:"How long it is valid (${default})."`
	Rate       string   `placeholder:"N/s|N/min|N/h" help:"Maximum rate of calls; no limit by default."`
	Sandbox    bool     `help:"Issue a token for tests: it sees the reserved vehicles, SandboxNormal and ten others, and no real one."`
}

func (c *tokenIssue) Run(ctx context.Context, w streams) error {
	if c.Developer == "" {
		return usageError("--developer must not be empty")
	}
	r := access.Credential{Developer: c.Developer}
	var err error
	if r.Operations, err = access.ParseOperations(c.Operations); err != nil {
		return usageError("--operations: %v", err)
	}
	switch {
	case c.Sandbox && c.Vehicles != "":
		return usageError("--sandbox and --vehicles are mutually exclusive: a sandbox token sees the reserved " +
			"vehicles and no others")
	case c.Sandbox:
		r.Kind = access.SandboxKind
	case c.Vehicles == "":
		return usageError("say which vehicles the token sees: --vehicles all, --vehicles VID,… or --vehicles @FILE")
	default:
		if r.Vehicles, err = parseVehicles(c.Vehicles); err != nil {
			return fmt.Errorf("--vehicles: %w", err)
		}
	}
	if r.Rate, err = access.ParseRate(c.Rate); err != nil {
		return usageError("--rate: %v", err)
	}
	if r.Expires, err = lifetime(c.Expires, time.Now()); err != nil {
		return err
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.IssueToken(ctx, r) })
}

type tokenArg struct {
	ID string `arg:"" help:"The token's ID, as list shows it."`
}

// Validate refuses a secret in place of an ID before it is sent anywhere.
func (a tokenArg) Validate() error {
	if access.HoldsSecret(a.ID) {
		return errors.New("this looks like the secret of a token: give its ID, which begins with cstid; carstate " +
			"token list shows it")
	}
	return nil
}

type tokenList struct{ askFlags }

func (c *tokenList) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(a *client.Client) (any, error) { return a.Tokens(ctx) })
}

type tokenShow struct {
	askFlags
	tokenArg
}

func (c *tokenShow) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(a *client.Client) (any, error) { return a.Token(ctx, c.ID) })
}

type tokenGrant struct {
	askFlags
	tokenArg
	Add    string `placeholder:"VID,…|@FILE" help:"Vehicles that it may query from now on."`
	Remove string `placeholder:"VID,…|@FILE" help:"Vehicles that it may no longer query."`
}

func (c *tokenGrant) Run(ctx context.Context, w streams) error {
	if c.Add == "" && c.Remove == "" {
		return usageError("say which vehicles: --add VID,… or --remove VID,…")
	}
	add, err := optionalVIDs(c.Add)
	if err != nil {
		return fmt.Errorf("--add: %w", err)
	}
	remove, err := optionalVIDs(c.Remove)
	if err != nil {
		return fmt.Errorf("--remove: %w", err)
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.GrantToken(ctx, c.ID, add, remove) })
}

// changeFlags have no environment variables, because only a user's command may change anything.
type changeFlags struct {
	Vehicles string `env:"-" placeholder:"all|VID,…|@FILE" help:"All of its vehicles, instead of the present ones, at most 10,000 by name; a file has one vid on each line."`
	Rate     string `env:"-" placeholder:"N/s|none" help:"Its rate, as N/s, N/min or N/h, or none for no limit."`
	Expires  string `env:"-" placeholder:"90d|never" help:"How long it is valid from now on."`
}

func (f changeFlags) change(now time.Time) (to access.Change, err error) {
	if f.Vehicles != "" {
		v, err := parseVehicles(f.Vehicles)
		if err != nil {
			return to, fmt.Errorf("--vehicles: %w", err)
		}
		to.Vehicles = &v
	}
	if f.Rate != "" {
		rate, err := access.ParseRate(f.Rate)
		if err != nil {
			return to, usageError("--rate: %v, or none", err)
		}
		to.Rate = &rate
	}
	if f.Expires != "" {
		expires, err := lifetime(f.Expires, now)
		if err != nil {
			return to, err
		}
		to.Expires = &expires
	}
	return to, nil
}

type tokenChange struct {
	sureFlags
	tokenArg
	changeFlags
}

func (c *tokenChange) Run(ctx context.Context, w streams) error {
	to, err := c.change(time.Now())
	if err != nil {
		return err
	}
	if to == (access.Change{}) {
		return usageError("say what to change: --vehicles, --rate or --expires")
	}
	if to.Vehicles != nil && to.Vehicles.All() {
		if err := c.sure(ctx, w, "Token %s sees every vehicle from now on, and its list is not kept. Change it?",
			c.ID); err != nil {
			return err
		}
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.ChangeToken(ctx, c.ID, to) })
}

type tokenRotate struct {
	sureFlags
	tokenArg
	Overlap string `default:"24h" placeholder:"24h|7d|0s" help:"How long the old secret stays valid (${default})."`
}

func (c *tokenRotate) Run(ctx context.Context, w streams) error {
	d, err := overlap(c.Overlap)
	if err == nil && d == 0 {
		err = c.sure(ctx, w, "All earlier secrets of token %s become invalid at once. Rotate it?", c.ID)
	}
	if err != nil {
		return err
	}
	return c.ask(w, func(a *client.Client) (any, error) { return a.RotateToken(ctx, c.ID, d) })
}

type tokenRevoke struct {
	sureFlags
	tokenArg
}

func (c *tokenRevoke) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(client *client.Client) (any, error) {
		if c.asks() {
			t, err := client.Token(ctx, c.ID)
			if err != nil {
				return nil, err
			}
			if err := c.sure(ctx, w, "Token %s of %s becomes invalid at once and permanently. Revoke it?", t.ID,
				t.Developer); err != nil {
				return nil, err
			}
		}
		return client.RevokeToken(ctx, c.ID)
	})
}
