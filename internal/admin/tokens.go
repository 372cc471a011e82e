package admin

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

func (s *Server) issueToken(r *http.Request, in tokenRequest) (IssuedToken, error) {
	req, err := s.tokenRequest(in)
	if err != nil {
		return IssuedToken{}, err
	}
	if err := s.checkGrantable(slices.Collect(req.Vehicles.Sorted())...); err != nil {
		return IssuedToken{}, err
	}
	t, secret, err := access.Issue(req, s.cfg.Now())
	if err != nil {
		return IssuedToken{}, refuse(http.StatusBadRequest, "%v", err)
	}
	vehicles := s.inWords(t.Vehicles)
	if t.Sandbox {
		vehicles = "of the sandbox"
	}
	detail := fmt.Sprintf("developer %s; operations %s; vehicles %s", t.Developer, strings.Join(t.Operations.Names(), ", "), vehicles)
	err = s.deed(r, access.Event{Action: "token.issue", Object: t.ID, Detail: detail}, func(ctx context.Context) error {
		return s.cfg.Keeper.CreateToken(ctx, t)
	})
	if err != nil {
		return IssuedToken{}, err
	}
	return IssuedToken{
		ID:          t.ID,
		AccessToken: secret,
		Developer:   t.Developer,
		Operations:  t.Operations.Names(),
		Vehicles:    VehicleList{t.Vehicles},
		ExpiresAt:   orNil(t.Expires),
		Rate:        t.Rate.String(),
	}, nil
}

// tokenRequest turns what came over the wire into the domain's request.
func (s *Server) tokenRequest(in tokenRequest) (access.TokenRequest, error) {
	switch {
	case in.Sandbox && in.Vehicles != nil:
		return access.TokenRequest{}, refuse(http.StatusBadRequest, "a sandbox token sees the reserved vehicles and no others: leave vehicles out")
	case in.Sandbox:
		in.Vehicles = new(VehicleList)
	case in.Vehicles == nil:
		return access.TokenRequest{}, errVehiclesMissing
	}
	operations := access.AllOperations
	if in.Operations != nil {
		var err error
		if operations, err = access.ParseOperations(in.Operations); err != nil {
			return access.TokenRequest{}, refuse(http.StatusBadRequest, "%v", err)
		}
	}
	rate, err := access.ParseRate(in.Rate)
	if err != nil {
		return access.TokenRequest{}, refuse(http.StatusBadRequest, "%v", err)
	}
	return access.TokenRequest{
		Developer:  in.Developer,
		Operations: operations,
		Vehicles:   in.Vehicles.Vehicles,
		Rate:       rate,
		Sandbox:    in.Sandbox,
		Expires:    in.ExpiresAt.or(s.cfg.Now().Add(access.DefaultTokenLife)),
	}, nil
}

// errVehiclesMissing keeps "all" from being what happens when nobody decides.
var errVehiclesMissing = refuse(http.StatusBadRequest, `vehicles are missing: "all", or a list of vids`)

func (s *Server) listTokens(*http.Request, nothing) (tokenList, error) {
	list := tokenList{Tokens: []TokenSummary{}}
	for _, g := range s.cfg.Tokens.List() {
		list.Tokens = append(list.Tokens, s.summary(g.Token))
	}
	return list, nil
}

func (s *Server) showToken(r *http.Request, _ nothing) (TokenRecord, error) {
	g, ok := s.cfg.Tokens.Get(r.PathValue("id"))
	if !ok {
		return TokenRecord{}, access.ErrNotFound
	}
	now := s.cfg.Now()
	used := s.cfg.Tokens.Usage(g.ID, now)
	record := TokenRecord{
		TokenSummary: s.summary(g.Token),
		EarlierUntil: earlierUntil(g.Earlier, now),
		Usage: TokenUsage{
			Today:      CallCounts{used.Since(access.DayOf(now))},
			Last30Days: CallCounts{used.Since(access.DayOf(now) - access.UsageDays + 1)},
		},
		Vehicles: VehicleList{g.Vehicles},
	}
	if !used.LastRefused.IsZero() {
		record.LastRefusedAt, record.LastRefusedReason = orNil(used.LastRefused), used.Reason.String()
	}
	return record, nil
}

// revokeToken revokes once; a second call changes nothing and says the same.
func (s *Server) revokeToken(r *http.Request, _ nothing) (TokenSummary, error) {
	if g, ok := s.cfg.Tokens.Get(r.PathValue("id")); ok && !g.Revoked.IsZero() {
		return s.summary(g.Token), nil
	}
	now := wireTime(s.cfg.Now())
	return s.updateToken(r, access.Event{Action: "token.revoke"}, func(t *access.Token) error {
		if t.Revoked.IsZero() {
			t.Revoked = now
		}
		return nil
	})
}

func (s *Server) grantToken(r *http.Request, in grantRequest) (TokenSummary, error) {
	if len(in.Add)+len(in.Remove) == 0 {
		return TokenSummary{}, refuse(http.StatusBadRequest, "name the vehicles to add or to remove")
	}
	added := access.VehicleSet(in.Add...)
	if slices.ContainsFunc(in.Remove, added.Include) {
		return TokenSummary{}, refuse(http.StatusBadRequest, "a vehicle is to be added and removed at once: decide")
	}
	if err := s.checkGrantable(in.Add...); err != nil {
		return TokenSummary{}, err
	}
	now := s.cfg.Now()
	e := access.Event{Action: "token.grant", Detail: "add " + s.named(len(in.Add), slices.Values(in.Add)) + "; remove " + s.named(len(in.Remove), slices.Values(in.Remove))}
	return s.updateToken(r, e, func(t *access.Token) error {
		if err := t.Usable(now); err != nil {
			return refuse(http.StatusConflict, "the token cannot be granted anything: %v", err)
		}
		v, ok := t.Vehicles.Without(in.Remove...)
		if !ok && len(in.Remove) > 0 {
			return refuse(http.StatusConflict, "the token counts for all vehicles and cannot lose a few: issue one with a list instead")
		}
		reserved := access.SandboxVehicles()
		if t.Sandbox && slices.ContainsFunc(in.Add, func(id vehicle.ID) bool { return !reserved.Include(id) }) {
			return refuse(http.StatusConflict, "a sandbox token sees the reserved vehicles and no others")
		}
		t.Vehicles = v.With(in.Add...)
		return nil
	})
}

// updateToken audits and applies a change to the token that the path names.
func (s *Server) updateToken(r *http.Request, e access.Event, change func(*access.Token) error) (TokenSummary, error) {
	e.Object = r.PathValue("id")
	if _, ok := s.cfg.Tokens.Get(e.Object); !ok {
		// Free text from a path must not reach the audit.
		return TokenSummary{}, access.ErrNotFound
	}
	var t access.Token
	err := s.deed(r, e, func(ctx context.Context) (err error) {
		t, err = s.cfg.Keeper.UpdateToken(ctx, e.Object, change)
		return err
	})
	if err != nil {
		return TokenSummary{}, err
	}
	return s.summary(t), nil
}

func (s *Server) summary(t access.Token) TokenSummary {
	sum := TokenSummary{
		ID:           t.ID,
		Developer:    t.Developer,
		Operations:   t.Operations.Names(),
		VehicleCount: countOf(t.Vehicles),
		Rate:         t.Rate.String(),
		CreatedAt:    t.Created,
		ExpiresAt:    orNil(t.Expires),
		RevokedAt:    orNil(t.Revoked),
		Sandbox:      t.Sandbox,
	}
	if g, ok := s.cfg.Tokens.Get(t.ID); ok {
		sum.LastUsedAt = orNil(g.LastUsed())
	}
	return sum
}

// inWords names vehicles for people.
func (s *Server) inWords(v access.Vehicles) string {
	if v.All() {
		return "all"
	}
	return s.named(v.Len(), v.Sorted())
}

// maxNamed bounds what the audit tells of vehicles: a list may have a million.
const maxNamed = 20

// named names the first of n vehicles, by hash, and counts the others.
func (s *Server) named(n int, ids iter.Seq[vehicle.ID]) string {
	if n == 0 {
		return "none"
	}
	if s.cfg.VehicleName == nil {
		return strconv.Itoa(n)
	}
	var b strings.Builder
	i := 0
	for id := range ids {
		if i == maxNamed {
			fmt.Fprintf(&b, ", and %d more", n-maxNamed)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.cfg.VehicleName(id))
		i++
	}
	return b.String()
}
