package admin

import (
	"net/http"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin/wire"
	"carstate/internal/ops"
)

func (s *Server) issueToken(r *http.Request, in wire.TokenRequest) (wire.IssuedToken, error) {
	req, err := s.tokenRequest(in)
	if err != nil {
		return wire.IssuedToken{}, err
	}
	t, secret, err := s.ops.IssueToken(r.Context(), caller(r), req)
	return wire.IssuedToken{
		ID: t.ID, AccessToken: secret, Developer: t.Developer, Operations: t.Operations, Vehicles: t.Vehicles, ExpiresAt: t.ExpiresAt, Rate: t.Rate,
	}, err
}

// tokenRequest turns what came over the wire into the domain's request.
func (s *Server) tokenRequest(in wire.TokenRequest) (access.TokenRequest, error) {
	switch {
	case in.Sandbox && in.Vehicles != nil:
		return access.TokenRequest{}, ops.Refuse(http.StatusBadRequest, "a sandbox token sees the reserved vehicles and no others: leave vehicles out")
	case in.Sandbox:
		in.Vehicles = new(ops.VehicleList)
	case in.Vehicles == nil:
		return access.TokenRequest{}, errVehiclesMissing
	}
	operations := access.AllOperations
	if in.Operations != nil {
		var err error
		if operations, err = access.ParseOperations(in.Operations); err != nil {
			return access.TokenRequest{}, ops.Refuse(http.StatusBadRequest, "%v", err)
		}
	}
	rate, err := access.ParseRate(in.Rate)
	if err != nil {
		return access.TokenRequest{}, ops.Refuse(http.StatusBadRequest, "%v", err)
	}
	return access.TokenRequest{
		Developer:  in.Developer,
		Operations: operations,
		Vehicles:   in.Vehicles.Vehicles,
		Rate:       rate,
		Sandbox:    in.Sandbox,
		Expires:    in.ExpiresAt.Or(s.cfg.Now().Add(access.DefaultTokenLife)),
	}, nil
}

// errVehiclesMissing keeps "all" from being what happens when nobody decides.
var errVehiclesMissing = ops.Refuse(http.StatusBadRequest, `vehicles are missing: "all", or a list of vids`)

func (s *Server) listTokens(*http.Request, nothing) (wire.TokenList, error) {
	return wire.TokenList{Tokens: s.ops.Tokens()}, nil
}

func (s *Server) showToken(r *http.Request, _ nothing) (ops.TokenRecord, error) {
	return s.ops.Token(r.PathValue("id"))
}

func (s *Server) grantToken(r *http.Request, in wire.GrantRequest) (ops.TokenSummary, error) {
	return s.ops.GrantToken(r.Context(), caller(r), r.PathValue("id"), in.Add, in.Remove)
}

func (s *Server) rotateToken(r *http.Request, in wire.RotateRequest) (wire.RotatedToken, error) {
	overlap, err := overlapOf(in)
	if err != nil {
		return wire.RotatedToken{}, err
	}
	t, secret, err := s.ops.RotateToken(r.Context(), caller(r), r.PathValue("id"), overlap)
	return wire.RotatedToken{ID: t.ID, AccessToken: secret, Developer: t.Developer, ExpiresAt: t.ExpiresAt, EarlierUntil: t.EarlierUntil}, err
}

func (s *Server) revokeToken(r *http.Request, _ nothing) (ops.TokenSummary, error) {
	return s.ops.RevokeToken(r.Context(), caller(r), r.PathValue("id"))
}

// overlapOf is how long the old secret is to be valid.
func overlapOf(in wire.RotateRequest) (time.Duration, error) {
	if in.OverlapSeconds == nil {
		return access.DefaultOverlap, nil
	}
	seconds := *in.OverlapSeconds
	// Compared in seconds, because more of them than that may not fit.
	if limit := int64(access.MaxOverlap / time.Second); seconds < 0 || seconds > limit {
		return 0, ops.Refuse(http.StatusBadRequest, "overlap_seconds is a number from 0 to %d", limit)
	}
	return time.Duration(seconds) * time.Second, nil
}
