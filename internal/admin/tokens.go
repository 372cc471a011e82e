package admin

import (
	"net/http"

	"carstate/internal/access"
)

func (s *Server) issueToken(r *http.Request, in tokenRequest) (IssuedToken, error) {
	req, err := s.tokenRequest(in)
	if err != nil {
		return IssuedToken{}, err
	}
	t, secret, err := s.deeds.IssueToken(r.Context(), caller(r), req)
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

func (s *Server) revokeToken(r *http.Request, _ nothing) (TokenSummary, error) {
	t, err := s.deeds.RevokeToken(r.Context(), caller(r), r.PathValue("id"))
	if err != nil {
		return TokenSummary{}, err
	}
	return s.summary(t), nil
}

func (s *Server) grantToken(r *http.Request, in grantRequest) (TokenSummary, error) {
	t, err := s.deeds.GrantToken(r.Context(), caller(r), r.PathValue("id"), in.Add, in.Remove)
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
		sum.LastUsedAt = orNil(g.LastUsed(s.cfg.Now()))
	}
	return sum
}
