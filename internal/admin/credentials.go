package admin

import (
	"cmp"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/ops"
)

func (s *Server) issueToken(r *http.Request, in wire.TokenRequest) (wire.IssuedToken, error) {
	req, err := s.tokenRequest(in)
	if err != nil {
		return wire.IssuedToken{}, err
	}
	c, secret, err := s.ops.Create(r.Context(), caller(r), req)
	t := s.ops.TokenSummary(c)
	return wire.IssuedToken{
		ID: t.ID, AccessToken: secret, Developer: t.Developer, Operations: t.Operations,
		Vehicles: ops.VehicleList{Vehicles: c.Vehicles}, ExpiresAt: t.ExpiresAt, Rate: t.Rate,
	}, err
}

func (s *Server) tokenRequest(in wire.TokenRequest) (c access.Credential, err error) {
	c = access.Credential{Kind: access.TokenKind, Developer: in.Developer, Operations: access.AllOperations}
	switch {
	case in.Sandbox && in.Vehicles != nil:
		return c, ops.Refusalf(http.StatusBadRequest,
			"a sandbox token sees the reserved vehicles and no others: leave vehicles out")
	case in.Sandbox:
		c.Kind = access.SandboxKind
	case in.Vehicles == nil:
		return c, errVehiclesMissing
	default:
		c.Vehicles = in.Vehicles.Vehicles
	}
	if in.Operations != nil {
		if c.Operations, err = access.ParseOperations(in.Operations); err != nil {
			return c, ops.Refusalf(http.StatusBadRequest, "%v", err)
		}
	}
	set, err := parseChange(wire.SourceChange{Rate: &in.Rate, ExpiresAt: in.ExpiresAt})
	if err != nil {
		return c, err
	}
	c.Rate = *set.Rate
	c.Expires = *cmp.Or(set.Expires, new(s.cfg.Now().Add(access.DefaultTokenLife)))
	return c, nil
}

// There is no default, so that "all" must be given explicitly.
var errVehiclesMissing = ops.Refusalf(http.StatusBadRequest, `vehicles are missing: "all", or a list of vids`)

func (s *Server) grantToken(r *http.Request, in wire.GrantRequest) (ops.TokenSummary, error) {
	c, err := s.ops.GrantToken(r.Context(), caller(r), r.PathValue("name"), in.Add, in.Remove)
	return s.ops.TokenSummary(c), err
}

func (s *Server) changeToken(r *http.Request, in wire.TokenChange) (ops.TokenSummary, error) {
	c, err := s.change(r, access.TokenKind, wire.SourceChange{TokenChange: in})
	return s.ops.TokenSummary(c), err
}

func (s *Server) changeSource(r *http.Request, in wire.SourceChange) (ops.SourceSummary, error) {
	c, err := s.change(r, access.SourceKind, in)
	return s.ops.SourceSummary(c), err
}

func (s *Server) change(r *http.Request, kind access.Kind, in wire.SourceChange) (access.Credential, error) {
	to, err := parseChange(in)
	if err != nil {
		return access.Credential{}, err
	}
	return s.ops.ChangeCredential(r.Context(), caller(r), kind, r.PathValue("name"), to)
}

func parseChange(in wire.SourceChange) (to access.Change, err error) {
	to.Strict, to.TrustedCrowd = in.Strict, in.TrustedCrowd
	if in.Vehicles != nil {
		to.Vehicles = &in.Vehicles.Vehicles
	}
	var expires, rate, onChange, mapping error
	to.Expires, expires = parseExpiry(in.ExpiresAt)
	to.Rate, rate = parsed(in.Rate, access.ParseRate, "")
	to.OnChange, onChange = parsed(in.OnChange, access.ParseOnChange, "on_change: ")
	to.Format, mapping = parsed(in.Format, format.Parse, "format: ")
	return to, cmp.Or(expires, rate, onChange, mapping)
}

func parsed[T any](text *string, parse func(string) (T, error), member string) (*T, error) {
	if text == nil {
		return nil, nil
	}
	v, err := parse(*text)
	if err != nil {
		return nil, ops.Refusalf(http.StatusBadRequest, "%s%v", member, err)
	}
	return &v, nil
}

// parseExpiry returns nil if x is left out, and the zero time for never.
func parseExpiry(x jsontext.Value) (*time.Time, error) {
	at := new(time.Time)
	switch {
	case x == nil:
		return nil, nil
	case x.Kind() == jsontext.KindNull:
		return at, nil
	case json.Unmarshal(x, at) != nil || at.IsZero():
		return nil, ops.Refusalf(http.StatusBadRequest,
			"expires_at is null for never, or a time such as 2030-01-31T12:00:00Z")
	}
	return at, nil
}

func (s *Server) addSource(r *http.Request, in wire.SourceRequest) (wire.AddedSource, error) {
	if in.Vehicles == nil {
		return wire.AddedSource{}, errVehiclesMissing
	}
	set, err := parseChange(wire.SourceChange{ExpiresAt: in.ExpiresAt, Rate: &in.Rate,
		OnChange: &in.OnChange, Format: &in.Format})
	if err != nil {
		return wire.AddedSource{}, err
	}
	c, key, err := s.ops.Create(r.Context(), caller(r), access.Credential{
		Kind: access.SourceKind, Name: in.Name, Vehicles: in.Vehicles.Vehicles, Rate: *set.Rate,
		Expires: *cmp.Or(set.Expires, new(time.Time)), Strict: in.Strict, OnChange: *set.OnChange, Format: *set.Format,
		TrustedCrowd: in.TrustedCrowd,
	})
	vehicles := ops.VehicleList{Vehicles: c.Vehicles}
	return wire.AddedSource{Name: c.Name, Key: key, Vehicles: vehicles, Rate: c.RateText(), Strict: c.Strict,
		OnChange: c.OnChange.String(), Format: c.Format.String(), TrustedCrowd: c.Crowd()}, err
}

func (s *Server) addOperator(r *http.Request, in wire.OperatorRequest) (wire.OperatorKey, error) {
	c, key, err := s.ops.Create(r.Context(), caller(r), access.Credential{Kind: access.OperatorKind, Name: in.Name,
		ReadOnly: in.ReadOnly})
	return wire.OperatorKey{Name: c.Name, Key: key}, err
}

func (s *Server) rotateOperator(r *http.Request, _ nothing) (wire.OperatorKey, error) {
	c, key, err := s.ops.Rotate(r.Context(), caller(r), access.OperatorKind, r.PathValue("name"), 0)
	return wire.OperatorKey{Name: c.Name, Key: key}, err
}

func (s *Server) rotateAdminKey(r *http.Request, _ nothing) (wire.RotatedAdminKey, error) {
	file, err := s.ops.RotateAdminKey(r.Context(), caller(r))
	return wire.RotatedAdminKey{File: file}, err
}

func list[Entry, Out any](
	s *Server, kind access.Kind, show func(access.Credential) Entry, body func([]Entry) Out,
) func(*http.Request, nothing) (Out, error) {
	return func(*http.Request, nothing) (Out, error) {
		entries := []Entry{}
		for _, g := range s.ops.Credentials(kind) {
			entries = append(entries, show(g.Credential))
		}
		return body(entries), nil
	}
}

func show[Out any](
	s *Server, kind access.Kind, record func(*access.Grant) Out,
) func(*http.Request, nothing) (Out, error) {
	return func(r *http.Request, _ nothing) (out Out, err error) {
		g, err := s.ops.Credential(kind, r.PathValue("name"))
		if err != nil {
			return out, err
		}
		return record(g), nil
	}
}

func rotate[Out any](
	s *Server, kind access.Kind, show func(c access.Credential, secret string) Out,
) func(*http.Request, wire.RotateRequest) (Out, error) {
	return func(r *http.Request, in wire.RotateRequest) (out Out, err error) {
		overlap := access.DefaultOverlap
		if seconds := in.OverlapSeconds; seconds != nil {
			// Compared in seconds, because a large number would overflow a Duration.
			if limit := int64(access.MaxOverlap / time.Second); *seconds < 0 || *seconds > limit {
				return out, ops.Refusalf(http.StatusBadRequest, "overlap_seconds is a number from 0 to %d", limit)
			}
			overlap = time.Duration(*seconds) * time.Second
		}
		c, secret, err := s.ops.Rotate(r.Context(), caller(r), kind, r.PathValue("name"), overlap)
		return show(c, secret), err
	}
}

func (s *Server) rotatedToken(c access.Credential, secret string) wire.RotatedToken {
	t := s.ops.TokenSummary(c)
	return wire.RotatedToken{ID: t.ID, AccessToken: secret, Developer: t.Developer, ExpiresAt: t.ExpiresAt,
		EarlierUntil: s.ops.EarlierUntil(c)}
}

func (s *Server) rotatedSource(c access.Credential, key string) wire.RotatedSource {
	return wire.RotatedSource{Name: c.Name, Key: key, EarlierUntil: s.ops.EarlierUntil(c)}
}

func end[Out any](
	s *Server, kind access.Kind, show func(access.Credential) Out,
) func(*http.Request, nothing) (Out, error) {
	return func(r *http.Request, _ nothing) (Out, error) {
		c, err := s.ops.End(r.Context(), caller(r), kind, r.PathValue("name"))
		return show(c), err
	}
}
