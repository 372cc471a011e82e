package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/inwords"
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
	query := url.Values{}
	for name, text := range map[string]string{"actor": c.Actor, "action": c.Action, "since": c.Since, "until": c.Until,
		"vid": c.VID} {
		if text == "" {
			continue
		}
		if name == "since" || name == "until" {
			var ok bool
			if text, ok = auditTime(text, now); !ok {
				return nil, usageError("--%s must be a day such as 2026-11-20, a time such as 2026-11-20T12:00:00Z, or an "+
					"age such as 24h or 7d", name)
			}
		}
		query.Set(name, text)
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

func (c *auditCommand) print(ctx context.Context, admin *client.Client, query url.Values, w streams) error {
	limit := ops.DefaultEvents
	if c.Limit != nil {
		limit = cmp.Or(*c.Limit, math.MaxInt)
	}
	shown, mayConcern := 0, 0
	defer func() { fmt.Fprint(w.err, mayConcernInWords(mayConcern)) }()
	for {
		query.Set("limit", strconv.Itoa(min(ops.MaxEvents, limit-shown)))
		events, err := admin.SearchAudit(ctx, query)
		if err == nil {
			err = w.show(events)
		}
		if err != nil {
			return err
		}
		shown += len(events.Events)
		mayConcern += events.MayConcern
		switch {
		case events.Older == 0 && shown == 0:
			fmt.Fprintln(w.err, "There is no such event.")
			return nil
		case events.Older == 0:
			return nil
		case shown == limit:
			fmt.Fprintln(w.err, "There may be older events: --limit 0 shows all.")
			return nil
		}
		query.Set("before", strconv.FormatUint(events.Older, 10))
	}
}

func mayConcernInWords(n int) string {
	if n == 0 {
		return ""
	}
	events := "1 event among those searched names"
	if n > 1 {
		events = inwords.Count(n) + " events among those searched name"
	}
	return events + " more vehicles than the audit lists, and may concern this one. Search without --vid " +
		"to see all events; `carstate token show ID` and `carstate source show NAME` list the vehicles of a grant now.\n"
}
