package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// A filter with its zero value matches every event.
type AuditQuery struct {
	Actor   string
	Action  string    // such as "token.issue", or "token" for all actions on tokens
	Since   time.Time // inclusive
	Until   time.Time // exclusive
	Vehicle string    // the beginning of a vehicle's hash; see VehicleMark
	Before  uint64    // the Older of the previous page; 0: the newest event
	Limit   int       // 0: DefaultEvents
}

const (
	DefaultEvents = 100
	MaxEvents     = 1000
)

// A search ends at these limits before its page is full; the next page continues it.
const (
	searchPages  = 50 // of MaxEvents each
	searchWithin = 2 * time.Second
	// clocksApart: an event may have an earlier time than one stored before it, because the clocks
	// of two nodes differ.
	clocksApart = time.Hour
)

type EventList struct {
	Events []access.Event `json:"events"`
	// Older is the next page's Before, even if Events is empty; 0: last page.
	Older uint64 `json:"older"`
	// MayConcern counts events that may concern Vehicle: they match the other filters, and do not list
	// all of their vehicles.
	MayConcern int `json:"may_concern"`
}

func (p *Operations) VehicleMark(id vehicle.ID) string { return p.cfg.Forgotten.Hash(id).Short() }

// AskedAudit parses parameters, ignores those without a value, and refuses "format".
func (p *Operations) AskedAudit(v url.Values) (q AuditQuery, err error) {
	for name, values := range v {
		text := values[0]
		switch {
		case len(values) != 1:
			return q, Refusalf(http.StatusBadRequest, "each parameter is given once")
		case text == "": // an empty field of a form
			continue
		}
		switch name {
		case "actor":
			q.Actor = text
		case "action":
			if q.Action = text; !slices.ContainsFunc(Actions, q.isOf) {
				err = errors.New("action must be one of " + strings.Join(Actions, ", ") + ", or a kind such as token")
			}
		case "since":
			q.Since, err = ParseTime(text, 0)
		case "until":
			q.Until, err = ParseTime(text, 24*time.Hour)
		case "vid":
			var id vehicle.ID
			if id, err = vehicle.ParseID(text); err == nil {
				q.Vehicle = p.VehicleMark(id)
			}
		case "vehicle":
			if q.Vehicle = text; len(text) != len(access.VehicleHash{}.Short()) || strings.Trim(text, "0123456789abcdef") != "" {
				err = errors.New("vehicle is the first 16 digits of a vehicle's hash, as the audit has them")
			}
		case "before":
			if q.Before, err = strconv.ParseUint(text, 10, 64); err != nil {
				err = errors.New("before is the value of older from another page")
			}
		case "limit":
			if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > MaxEvents {
				err = fmt.Errorf("limit is a number from 1 to %d", MaxEvents)
			}
		default:
			err = errors.New("the audit takes actor, action, since, until, vid, vehicle, before, limit and format")
		}
		if err != nil {
			return q, Refusalf(http.StatusBadRequest, "%v", err)
		}
	}
	return q, nil
}

// ParseTime parses a time, in UTC if it has no zone, as browsers send it, or a date, to which it
// adds day: 24 h for the end of a range.
func ParseTime(text string, day time.Duration) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, errors.New("a time is such as 2026-11-20T12:00:00Z, or a day such as 2026-11-20")
	}
	return t.Add(day), nil
}

func (q AuditQuery) isOf(action string) bool {
	return action == q.Action || strings.HasPrefix(action, q.Action+".")
}

// notAllListed matches a list that [Operations.named] shortened.
var notAllListed = regexp.MustCompile(`[0-9a-f]{16}, and [0-9]+ more`)

// may: the event is not selected, but may concern the vehicle, because it does not list all.
func (q AuditQuery) matches(e *access.Event) (selected, may bool) {
	if q.Actor != "" && e.Actor != q.Actor || q.Action != "" && !q.isOf(e.Action) ||
		e.Time.Before(q.Since) || !q.Until.IsZero() && !e.Time.Before(q.Until) {
		return false, false
	}
	if q.Vehicle == "" || strings.HasPrefix(e.Object, q.Vehicle) || strings.Contains(e.Detail, q.Vehicle) {
		return true, false
	}
	return false, notAllListed.MatchString(e.Detail)
}

// With a filter, Audit reads up to 50,000 events or two seconds; the page at Older continues.
func (p *Operations) Audit(ctx context.Context, q AuditQuery) (page EventList, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if q.Limit == 0 {
		q.Limit = DefaultEvents
	}
	page.Events = []access.Event{}
	read := func(before uint64, limit int) (events []access.Event, older uint64, err error) {
		if events, older, err = p.cfg.Store.AuditPage(ctx, before, limit); err != nil {
			err = fmt.Errorf("%w: %w", Refusalf(http.StatusServiceUnavailable,
				"the audit cannot be read at present; the service's log says why"), err)
		}
		return events, older, err
	}
	began, before, size := time.Now(), q.Before, MaxEvents
	if (q == AuditQuery{Before: q.Before, Limit: q.Limit}) {
		size = q.Limit // every event matches
	}
	for range searchPages {
		events, older, err := read(before, size)
		if err != nil {
			return EventList{}, err
		}
		for i := range events {
			selected, may := q.matches(&events[i])
			if may {
				page.MayConcern++
			}
			if !selected {
				continue
			}
			page.Events = append(page.Events, events[i])
			if len(page.Events) == q.Limit && i+1 < len(events) {
				_, page.Older, err = read(before, i+1) // the next page begins there
				return page, err
			}
		}
		last := len(events) - 1
		if older == 0 || last >= 0 && events[last].Time.Before(q.Since.Add(-clocksApart)) {
			page.Older = 0
			return page, nil
		}
		before, page.Older = older, older
		if len(page.Events) == q.Limit || time.Since(began) > searchWithin {
			break
		}
	}
	return page, nil
}
