package ops

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// VehicleQuery: a filter with its zero value matches every vehicle.
type VehicleQuery struct {
	Driving  string // one of DrivingFilters
	Throttle string // one of ThrottleFilters
	Reason   string // one of ReasonFilters
	Prefix   string
	Source   string // only vehicles that this source may report
	Sort     string // one of VehicleSorts; empty: the first
	Limit    int    // 0: DefaultVehicles
	Cursor   string // the Next of the previous page
}

const (
	DefaultVehicles = 100
	MaxVehicles     = 1000
)

// "trouble" is anomalies first, then jams, slow, stale, unknown, not driving, normal; in each group,
// the latest report first.
var VehicleSorts = []string{"trouble", "newest", "oldest"}

var (
	DrivingFilters  = fleet.DrivingStates[:3]
	ThrottleFilters = fleet.ThrottleStates[:2]
	ReasonFilters   = []string{"stale", "not_driving", "unknown"}
)

type ListedVehicle struct {
	VID      string        `json:"vid"`
	Driving  ListedVerdict `json:"driving"`
	Throttle ListedVerdict `json:"throttle"`
}

type ListedVerdict struct {
	// Outcome is "answered", "unknown", "stale" or "not_driving".
	Outcome string     `json:"outcome"`
	Verdict string     `json:"verdict"` // in words; may be empty
	Value   string     `json:"value"`   // as in the answer to a query; may be empty
	Time    *time.Time `json:"time"`    // of the reading
}

type VehiclePage struct {
	AskedAt  time.Time       `json:"asked_at"`
	Known    int             `json:"known"`    // all vehicles
	Matched  int             `json:"matched"`  // in the list, on all pages
	Unlisted int             `json:"unlisted"` // in Known but in no list: the memory for vids is full
	Vehicles []ListedVehicle `json:"vehicles"`
	Next     string          `json:"next"` // empty: the last page
}

// At most maxWalks pages are made at the same time: each reads the whole fleet table.
const maxWalks = 2

func (q *VehicleQuery) texts() map[string]*string {
	return map[string]*string{
		"driving": &q.Driving, "throttle": &q.Throttle, "reason": &q.Reason,
		"prefix": &q.Prefix, "source": &q.Source, "sort": &q.Sort, "cursor": &q.Cursor,
	}
}

// AskedVehicles parses parameters, and refuses "format".
func AskedVehicles(v url.Values) (q VehicleQuery, err error) {
	texts := q.texts()
	for name, values := range v {
		text, known := texts[name]
		switch {
		case len(values) != 1:
			return q, Refusalf(http.StatusBadRequest, "each parameter is given once")
		case known:
			*text = values[0]
		case name == "limit":
			if q.Limit, err = strconv.Atoi(values[0]); err != nil || q.Limit < 1 || q.Limit > MaxVehicles {
				return q, Refusalf(http.StatusBadRequest, "limit must be a number from 1 to %d", MaxVehicles)
			}
		default:
			return q, Refusalf(http.StatusBadRequest,
				"a list of vehicles takes driving, throttle, reason, prefix, source, sort, limit, cursor and format")
		}
	}
	return q, q.check()
}

func (q VehicleQuery) Values() url.Values {
	v := url.Values{}
	for name, text := range q.texts() {
		if *text != "" {
			v.Set(name, *text)
		}
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

func (q VehicleQuery) check() error {
	for _, f := range []struct {
		name, value string
		values      []string
	}{{"driving", q.Driving, DrivingFilters}, {"throttle", q.Throttle, ThrottleFilters},
		{"reason", q.Reason, ReasonFilters}, {"sort", q.Sort, VehicleSorts}} {
		if f.value != "" && !slices.Contains(f.values, f.value) {
			return Refusalf(http.StatusBadRequest, "%s must be one of %s", f.name, strings.Join(f.values, ", "))
		}
	}
	if q.Driving != "" && q.Reason != "" {
		return Refusalf(http.StatusBadRequest,
			"driving lists cars with an answer, and reason lists those without: give one of them")
	}
	if q.Prefix != "" {
		if _, err := vehicle.ParseReportingID(q.Prefix); err != nil {
			return Refusalf(http.StatusBadRequest,
				"prefix must be the beginning of a vid: ASCII letters and digits, at most %d", vehicle.MaxReportingID)
		}
	}
	return nil
}

func (p *Operations) question(q VehicleQuery, clock func() signal.UnixMilli) (fleet.Question, error) {
	question := fleet.Question{Rank: q.rank, OldestFirst: q.Sort == "oldest", Now: clock, MaxAge: p.cfg.MaxAge}
	prefix, vehicles := []byte(q.Prefix), access.AllVehicles()
	if q.Source != "" {
		source, ok := p.cfg.Tables.Sources.Get(q.Source)
		if !ok {
			return question, Refusalf(http.StatusBadRequest, "there is no source of this name")
		}
		vehicles = source.Vehicles
	}
	if !vehicles.All() || q.Prefix != "" {
		question.Match = func(vid []byte) bool { return bytes.HasPrefix(vid, prefix) && vehicles.IncludeBytes(vid) }
	}
	return question, nil
}

// rank is 0 (the worst) to 6 or, in a list sorted by time, 0 for all. It is negative if the vehicle
// does not match q.
func (q VehicleQuery) rank(drives, throttles vehicle.Outcome, state driving.State, system throttle.System) int8 {
	answer := "" // about driving
	if drives == vehicle.Answered && state != 0 {
		answer = DrivingFilters[state-1]
	}
	switch {
	case q.Driving != "" && q.Driving != answer,
		q.Reason != "" && q.Reason != drives.String(),
		q.Throttle != "" && (throttles != vehicle.Answered || q.Throttle != system.String()):
		return -1
	case q.Sort == "newest", q.Sort == "oldest":
		return 0
	case throttles == vehicle.Answered && system == throttle.Anomaly:
		return 0
	case drives == vehicle.Stale:
		return 3
	case drives == vehicle.Unknown:
		return 4
	case drives == vehicle.NotDriving:
		return 5
	case state == driving.Jam:
		return 1
	case state == driving.Slow:
		return 2
	}
	return 6
}

// Vehicles takes a q of AskedVehicles. It computes each page when it is requested, so a car
// may be on two pages or on none.
func (p *Operations) Vehicles(ctx context.Context, q VehicleQuery) (VehiclePage, error) {
	if err := p.mayList(); err != nil {
		return VehiclePage{}, err
	}
	if q.Limit == 0 {
		q.Limit = DefaultVehicles
	}
	after, err := parseCursor(q.Cursor)
	if err != nil {
		return VehiclePage{}, err
	}
	select {
	case p.walks <- struct{}{}:
		defer func() { <-p.walks }()
	case <-ctx.Done():
		return VehiclePage{}, ctx.Err()
	}
	at := signal.At(p.cfg.Now())
	question, err := p.question(q, func() signal.UnixMilli { return at })
	if err != nil {
		return VehiclePage{}, err
	}
	list, matched, next, err := p.cfg.Fleet.First(ctx, question, after, q.Limit)
	if err != nil {
		return VehiclePage{}, err
	}
	page := VehiclePage{AskedAt: at.Time(), Known: p.cfg.Fleet.Len(), Matched: matched,
		Unlisted: max(0, p.cfg.Fleet.Len()-p.cfg.Fleet.Named()), Vehicles: []ListedVehicle{}}
	for _, l := range list {
		page.Vehicles = append(page.Vehicles, p.listedVehicle(l, at))
	}
	if next != nil {
		page.Next = cursorOf(*next)
	}
	return page, nil
}

func (p *Operations) mayList() error {
	if p.cfg.Filled() != nil {
		return Refusalf(http.StatusServiceUnavailable,
			"this node's table of vehicles is incomplete or too old: try again in a few seconds")
	}
	return nil
}

func (p *Operations) listedVehicle(l fleet.Listed, at signal.UnixMilli) ListedVehicle {
	driving, throttle := p.verdicts(l.Driving, l.Throttle, at)
	return ListedVehicle{string(l.ID), driving, throttle}
}

func (p *Operations) verdicts(
	d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict, at signal.UnixMilli,
) (driving, throttle ListedVerdict) {
	driving = ListedVerdict{Outcome: d.At(at, p.cfg.MaxAge).String(), Time: timeOrNil(d.Time)}
	if d.State != 0 {
		driving.Verdict, driving.Value = d.State.String(), string('0'+rune(d.State))
	}
	throttle = ListedVerdict{Outcome: t.At(at, p.cfg.MaxAge).String(), Time: timeOrNil(t.Time)}
	if t.Time != 0 {
		throttle.Verdict, throttle.Value = t.System.String(), string('0'+rune(t.System))
	}
	return driving, throttle
}

func cursorOf(p fleet.Place) string {
	b, _ := binary.Append(nil, binary.BigEndian, p) // a Place has a fixed size
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(cursor string) (*fleet.Place, error) {
	if cursor == "" {
		return nil, nil
	}
	place := new(fleet.Place)
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) != binary.Size(place) {
		return nil, Refusalf(http.StatusBadRequest, "cursor must be the next of the page before: begin with the first page")
	}
	_, err = binary.Decode(b, binary.BigEndian, place)
	return place, err
}
