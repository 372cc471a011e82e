package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

type auditCommand struct {
	listFlags
	Actor  string `placeholder:"NAME" help:"Only actions of this operator; admin is the holder of the admin key."`
	Action string `placeholder:"ACTION" help:"Only this action, such as token.issue, or all actions of a kind, such as token."`
	Since  string `placeholder:"TIME" help:"Only events since then: a day such as 2026-11-20 (UTC), a time such as 2026-11-20T12:00:00Z, ${more_since}"`
	Until  string `placeholder:"TIME" help:"Only events until then; a day is included."`
	VID    string `name:"vid" placeholder:"VID" help:"Only events about this vehicle. ${more_vid}"`
	Limit  *int   `placeholder:"N" help:"Maximum number of events (100); 0 for all."`
}

func (c *auditCommand) Run(ctx context.Context, w streams) error {
	query, err := c.query(time.Now())
	if err != nil {
		return err
	}
	if c.exports() {
		if c.Limit != nil {
			return usageError("--format %s exports every event that matches: leave out --limit", c.Format)
		}
		if c.VID != "" {
			fmt.Fprintln(w.err, "An event lists at most 20 vehicles. The file has no event that names this one after "+
				"them; without --format, the command counts the events that name more than 20.")
		}
		return c.export(ctx, w, "/v1/audit", query)
	}
	admin, err := c.client()
	if err != nil {
		return err
	}
	return c.print(ctx, admin, query, w)
}

func (c *auditCommand) query(now time.Time) (url.Values, error) {
	if c.Limit != nil && *c.Limit < 0 {
		return nil, usageError("--limit must be a number, 0 for all")
	}
	if c.VID != "" {
		if _, err := vehicle.ParseID(c.VID); err != nil {
			return nil, usageError("%v", err)
		}
	}
	query := url.Values{"actor": {c.Actor}, "action": {c.Action}, "vid": {c.VID}}
	for name, text := range map[string]string{"since": c.Since, "until": c.Until} {
		at, ok := auditTime(text, now)
		if text != "" && !ok {
			return nil, usageError("--%s must be a day such as 2026-11-20, a time such as 2026-11-20T12:00:00Z, or an "+
				"age such as 24h or 7d", name)
		}
		query.Set(name, at)
	}
	return query, nil
}

func auditTime(text string, now time.Time) (_ string, ok bool) {
	if d, ok := span(text); ok {
		return now.Add(-d).UTC().Format(time.RFC3339), d >= 0
	}
	_, err := ops.ParseTime(text, 0)
	return text, err == nil
}

func (c *auditCommand) print(ctx context.Context, admin *client.Client, query url.Values, w streams) (err error) {
	limit := ops.DefaultEvents
	if c.Limit != nil {
		limit = cmp.Or(*c.Limit, math.MaxInt)
	}
	var seen struct {
		Shown, MayConcern int
		Older             uint64
		Complete          bool
	}
	defer func() { err = errors.Join(err, printResult(w.err, w.command+" (stderr)", seen)) }()
	for {
		query.Set("limit", strconv.Itoa(min(ops.MaxEvents, limit-seen.Shown)))
		events, err := admin.SearchAudit(ctx, query)
		if err == nil {
			err = printResult(w.out, w.command, events)
		}
		if err != nil {
			return err
		}
		seen.Shown += len(events.Events)
		seen.MayConcern += events.MayConcern
		seen.Older = events.Older
		if seen.Complete = seen.Older == 0 || seen.Shown == limit; seen.Complete {
			return nil
		}
		query.Set("before", strconv.FormatUint(events.Older, 10))
	}
}
