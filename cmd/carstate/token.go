package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
)

type tokenCommand struct {
	Issue  tokenIssue  `cmd:"" help:"Issue a token; its secret is shown this once."`
	List   tokenList   `cmd:"" help:"List all tokens."`
	Show   tokenShow   `cmd:"" help:"Show one token."`
	Grant  tokenGrant  `cmd:"" help:"Add vehicles to a token, or take some away."`
	Revoke tokenRevoke `cmd:"" help:"Revoke a token, at once and for good."`
}

type tokenIssue struct {
	adminFlags
	Developer  string   `required:"" placeholder:"NAME" help:"Who gets the token."`
	Operations []string `default:"car_driving_state,throttle_system" placeholder:"OP,…" help:"What it may ask (${default})."`
	Vehicles   string   `default:"all" placeholder:"all|VID,…|@FILE" help:"Of which vehicles (${default}); a file has one vid a line."`
	Expires    string   `default:"90d" placeholder:"90d|never" help:"How long it lives (${default})."`
	Rate       string   `placeholder:"N/s|N/min|N/h" help:"How many calls it may make; without, there is no limit."`
	JSON       bool     `name:"json" help:"Print one JSON value and nothing else."`
}

// Help is shown by --help.
func (*tokenIssue) Help() string {
	return `The token is stored as a hash only: write it down now, it cannot be shown again.

Example:
  carstate token issue --developer "Ada Lovelace" --vehicles all --expires 90d`
}

// Run issues a token.
func (c *tokenIssue) Run(ctx context.Context, w streams) error {
	if c.Developer == "" {
		return usageError("--developer must not be empty")
	}
	r := access.TokenRequest{Developer: c.Developer}
	var err error
	if r.Operations, err = access.ParseOperations(c.Operations); err != nil {
		return usageError("--operations: %v", err)
	}
	if r.Vehicles, err = parseVehicles(c.Vehicles); err != nil {
		return fmt.Errorf("--vehicles: %w", err)
	}
	if r.Rate, err = access.ParseRate(c.Rate); err != nil {
		return usageError("--rate: %v", err)
	}
	if r.Expires, err = lifetime(c.Expires, time.Now()); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	t, err := client.IssueToken(ctx, r)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(w.out, t)
	}
	_, err = fmt.Fprintf(w.out, "%s\n", t.AccessToken)
	fmt.Fprintf(w.err, "This is the access token of %s, shown this once. Its ID is %s; it expires %s.\n", t.Developer, t.ID, day(t.ExpiresAt, "never"))
	return err
}

type tokenList struct {
	adminFlags
	JSON bool `name:"json" help:"Print one JSON value and nothing else."`
}

// Help is shown by --help.
func (*tokenList) Help() string { return "Example:\n  carstate token list" }

// Run lists the tokens.
func (c *tokenList) Run(ctx context.Context, w streams) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	tokens, err := client.Tokens(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(w.out, tokens)
	}
	if len(tokens) == 0 {
		_, err := fmt.Fprintln(w.out, "There is no token yet: carstate token issue --developer NAME")
		return err
	}
	t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tDEVELOPER\tOPERATIONS\tVEHICLES\tRATE\tEXPIRES\tREVOKED\tLAST USED")
	for _, x := range tokens {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", x.ID, x.Developer, strings.Join(x.Operations, ","), count(x.VehicleCount),
			orDash(x.Rate), day(x.ExpiresAt, "never"), day(x.RevokedAt, "-"), day(x.LastUsedAt, "-"))
	}
	return t.Flush()
}

type tokenShow struct {
	adminFlags
	ID   string `arg:"" help:"The token's ID, as list shows it."`
	JSON bool   `name:"json" help:"Print one JSON value and nothing else."`
}

// Help is shown by --help.
func (*tokenShow) Help() string { return "Example:\n  carstate token show cstid4Fz0kQ2mXbP1" }

// Run shows a token.
func (c *tokenShow) Run(ctx context.Context, w streams) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	t, err := client.Token(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(w.out, t)
	}
	_, err = fmt.Fprintf(w.out, "token       %s\ndeveloper   %s\noperations  %s\nvehicles    %s\nrate        %s\ncreated     %s\nexpires     %s\nrevoked     %s\nlast used   %s\n",
		t.ID, t.Developer, strings.Join(t.Operations, ", "), someVehicles(t.Vehicles), orDash(t.Rate),
		day(&t.CreatedAt, ""), day(t.ExpiresAt, "never"), day(t.RevokedAt, "-"), day(t.LastUsedAt, "-"))
	return err
}

type tokenGrant struct {
	adminFlags
	ID     string `arg:"" help:"The token's ID, as list shows it."`
	Add    string `placeholder:"VID,…|@FILE" help:"Vehicles that it may ask about from now on."`
	Remove string `placeholder:"VID,…|@FILE" help:"Vehicles that it may no longer ask about."`
	JSON   bool   `name:"json" help:"Print one JSON value and nothing else."`
}

// Help is shown by --help.
func (*tokenGrant) Help() string {
	return "Example:\n  carstate token grant cstid4Fz0kQ2mXbP1 --add NHeN4UqVsohGS55I7LBdh"
}

// Run changes a token's vehicles.
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
	client, err := c.client()
	if err != nil {
		return err
	}
	t, err := client.GrantToken(ctx, c.ID, add, remove)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(w.out, t)
	}
	_, err = fmt.Fprintf(w.out, "token %s now counts for %s vehicles\n", t.ID, count(t.VehicleCount))
	return err
}

type tokenRevoke struct {
	adminFlags
	ID   string `arg:"" help:"The token's ID, as list shows it."`
	JSON bool   `name:"json" help:"Print one JSON value and nothing else."`
}

// Help is shown by --help.
func (*tokenRevoke) Help() string { return "Example:\n  carstate token revoke cstid4Fz0kQ2mXbP1" }

// Run revokes a token.
func (c *tokenRevoke) Run(ctx context.Context, w streams) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	t, err := client.RevokeToken(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(w.out, t)
	}
	_, err = fmt.Fprintf(w.out, "token %s of %s is revoked\n", t.ID, t.Developer)
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// someVehicles names up to ten vehicles.
func someVehicles(v admin.VehicleList) string {
	if v.All() {
		return "all"
	}
	var names []string
	for id := range v.Sorted() {
		if len(names) == 10 {
			names = append(names, fmt.Sprintf("and %d more (--json lists them)", v.Len()-10))
			break
		}
		names = append(names, string(id))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}
