package client

import (
	"context"
	"iter"
	"maps"
	"net/url"
	"strconv"

	"carstate/internal/admin/wire"
	"carstate/internal/ops"
)

// AuditPages yields the pages of the audit, the newest events first. It ends after limit events, or
// after all if limit is 0. The parameter query holds filters as for SearchAudit; it must not be
// nil, and is not changed. If a page cannot be read, AuditPages yields the error in place of the
// page, and ends.
func (c *Client) AuditPages(ctx context.Context, query url.Values, limit int) iter.Seq2[wire.EventList, error] {
	return func(yield func(wire.EventList, error) bool) {
		query := maps.Clone(query)
		for yielded := 0; ; {
			page := ops.MaxEvents
			if limit != 0 {
				page = min(page, limit-yielded)
			}
			query.Set("limit", strconv.Itoa(page))
			events, err := c.SearchAudit(ctx, query)
			if !yield(events, err) || err != nil {
				return
			}
			yielded += len(events.Events)
			if events.Older == 0 || limit != 0 && yielded == limit {
				return
			}
			query.Set("before", strconv.FormatUint(events.Older, 10))
		}
	}
}
