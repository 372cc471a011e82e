package ops

import (
	"fmt"
	"strings"
	"time"

	"example.org/carstate/internal/access"
)

type TokenSummary struct {
	ID           string       `json:"id"`
	Developer    string       `json:"developer"`
	Operations   []string     `json:"operations"`
	VehicleCount VehicleCount `json:"vehicle_count"`
	Rate         string       `json:"rate"`
	CreatedAt    time.Time    `json:"created_at"`
	ExpiresAt    *time.Time   `json:"expires_at"`   // null: never
	RevokedAt    *time.Time   `json:"revoked_at"`   // null: not
	LastUsedAt   *time.Time   `json:"last_used_at"` // in whole minutes; null: never
	Sandbox      bool         `json:"sandbox"`
}

type TokenRecord struct {
	TokenSummary
	EarlierUntil      []time.Time `json:"earlier_until"`       // of replaced secrets
	LastRefusedAt     *time.Time  `json:"last_refused_at"`     // null: never
	LastRefusedReason string      `json:"last_refused_reason"` // empty: never
	Usage             TokenUsage  `json:"usage"`
	Vehicles          VehicleList `json:"vehicles"`
}

type TokenUsage struct {
	Calls    int64 `json:"calls"` // including refused ones
	Refusals int64 `json:"refusals"`
}

func (p *Operations) TokenSummary(t access.Credential) TokenSummary {
	s := TokenSummary{
		ID: t.Name, Developer: t.Developer, Operations: t.Operations.Names(), VehicleCount: countOf(t.Vehicles),
		Rate: t.Rate.String(), Sandbox: t.Sandbox(),
		CreatedAt: t.Created, ExpiresAt: orNil(t.Expires), RevokedAt: orNil(t.Ended),
	}
	if g, ok := p.cfg.Tables.Tokens.Get(t.Name); ok {
		s.LastUsedAt = orNil(g.Usage(p.cfg.Now()).LastUsed)
	}
	return s
}

func (p *Operations) TokenRecord(g *access.Grant) TokenRecord {
	used := g.Usage(p.cfg.Now())
	r := TokenRecord{
		TokenSummary:  p.TokenSummary(g.Credential),
		EarlierUntil:  p.EarlierUntil(g.Credential),
		LastRefusedAt: orNil(used.LastRefused),
		Usage:         TokenUsage{used.Calls, used.Refusals},
		Vehicles:      VehicleList{g.Vehicles},
	}
	if r.LastRefusedAt != nil {
		r.LastRefusedReason = used.Reason.String()
	}
	return r
}

type SourceSummary struct {
	Name         string         `json:"name"`
	VehicleCount VehicleCount   `json:"vehicle_count"`
	Rate         string         `json:"rate"` // empty or none: no limit
	Strict       bool           `json:"strict"`
	OnChange     string         `json:"on_change"` // empty: the rules decide
	Format       string         `json:"format"`    // empty: the service's own
	CreatedAt    time.Time      `json:"created_at"`
	ExpiresAt    *time.Time     `json:"expires_at"`    // null: never
	RemovedAt    *time.Time     `json:"removed_at"`    // null: not
	TrustedCrowd bool           `json:"trusted_crowd"` // see [access.Credential.Crowd]
	Seen         SourceActivity `json:"seen"`
}

// OwnMapping: Format is YAML, not the name of a preset.
func (s SourceSummary) OwnMapping() bool { return strings.Contains(s.Format, ":") }

// SourceActivity is of the node that answers, since it started.
type SourceActivity struct {
	LastSeenAt        *time.Time  `json:"last_seen_at"`        // null: never
	LastRefusedAt     *time.Time  `json:"last_refused_at"`     // its key or a sample; null: never
	LastRefusedReason string      `json:"last_refused_reason"` // empty: never
	LastRefusedText   string      `json:"last_refused_text"`   // in words
	Accepted          int64       `json:"accepted"`            // samples
	Late              int64       `json:"late"`                // accepted, older than the verdicts
	Refused           NamedCounts `json:"refused"`             // samples, by reason
	RefusedKeys       NamedCounts `json:"refused_keys"`        // uses of keys, by reason
	IgnoredSignals    int64       `json:"ignored_signals"`
	UnusedValues      int64       `json:"unused_values"` // of known signals
	RoadsDoubted      NamedCounts `json:"roads_doubted"` // evidence of roads, by reason

	SpeedFactor *SpeedFactor `json:"speed_factor"` // null: none was found
}

type SpeedFactor struct {
	Factor   float64 `json:"factor"`   // speed as sent × Factor = km/h
	Unit     string  `json:"unit"`     // such as m/s; empty: unknown
	Vehicles int     `json:"vehicles"` // with this factor
	Compared int     `json:"compared"`
}

func (f SpeedFactor) String() string {
	text := fmt.Sprintf("positions show %g times the speed (%d of %d compared vehicles)", f.Factor, f.Vehicles, f.Compared)
	if f.Unit != "" {
		text += ": is it in " + f.Unit + "?"
	}
	return text
}

type SourceRecord struct {
	SourceSummary
	EarlierUntil []time.Time    `json:"earlier_until"` // of replaced keys
	Vehicles     VehicleList    `json:"vehicles"`
	Refusals     []NotedRefusal `json:"refusals"` // of this node: the newest 20, newest first
}

type NotedRefusal struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"` // in words
}

func (p *Operations) SourceSummary(s access.Credential) SourceSummary {
	r := SourceSummary{
		Name: s.Name, VehicleCount: countOf(s.Vehicles), Rate: s.RateText(), Strict: s.Strict,
		OnChange: s.OnChange.String(), Format: s.Format.String(), TrustedCrowd: s.Crowd(),
		CreatedAt: s.Created, ExpiresAt: orNil(s.Expires), RemovedAt: orNil(s.Ended),
		Seen: SourceActivity{Refused: NamedCounts{}, RefusedKeys: NamedCounts{},
			RoadsDoubted: p.cfg.RoadsDoubted(s.Number)},
	}
	if g, ok := p.cfg.Tables.Sources.Get(s.Name); ok {
		r.Seen.add(g.Seen())
	}
	return r
}

func (p *Operations) SourceRecord(g *access.Grant) SourceRecord {
	s := g.Credential
	r := SourceRecord{p.SourceSummary(s), p.EarlierUntil(s), VehicleList{s.Vehicles}, []NotedRefusal{}}
	for _, n := range g.Seen().Noted {
		r.Refusals = append(r.Refusals, NotedRefusal{n.At, n.Reason.String(), n.Text})
	}
	return r
}

func (s *SourceActivity) add(seen access.SourceActivity) {
	s.LastSeenAt, s.LastRefusedAt = orNil(seen.LastSeen), orNil(seen.LastRefused)
	if s.LastRefusedAt != nil {
		s.LastRefusedReason, s.LastRefusedText = seen.Reason.String(), seen.Text
	}
	s.Accepted, s.Late, s.UnusedValues = seen.Accepted, seen.Late, seen.Unused
	s.IgnoredSignals = seen.Ignored
	if seen.Speeds.Found.Factor != 0 {
		s.SpeedFactor = new(SpeedFactor(seen.Speeds.Found))
	}
	for why, n := range seen.Refused {
		why := access.Refusal(why)
		switch {
		case n == 0:
		case why < access.SampleRefusals:
			s.Refused[why.String()] = n
		default:
			s.RefusedKeys[why.String()] = n
		}
	}
}

type OperatorSummary struct {
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	RotatedAt *time.Time `json:"rotated_at"` // null: never
	RemovedAt *time.Time `json:"removed_at"` // null: not
	ReadOnly  bool       `json:"read_only"`
}

func (p *Operations) OperatorSummary(o access.Credential) OperatorSummary {
	return OperatorSummary{Name: o.Name, CreatedAt: o.Created, RotatedAt: orNil(o.Rotated), RemovedAt: orNil(o.Ended),
		ReadOnly: o.ReadOnly}
}

func (p *Operations) EarlierUntil(c access.Credential) []time.Time {
	now, until := p.cfg.Now(), []time.Time{}
	if c.Usable(now) != nil {
		return until
	}
	for _, e := range c.Earlier {
		if e.Until.After(now) {
			until = append(until, e.Until)
		}
	}
	return until
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
