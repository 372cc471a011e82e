package ops

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// IssueToken issues a token. The secret is to be shown once.
func (p *Operations) IssueToken(ctx context.Context, by string, r access.TokenRequest) (TokenRecord, string, error) {
	if err := p.checkGrantable(slices.Collect(r.Vehicles.Sorted())...); err != nil {
		return TokenRecord{}, "", err
	}
	t, secret, err := access.Issue(r, p.cfg.Now())
	if err != nil {
		return TokenRecord{}, "", Refuse(http.StatusBadRequest, "%v", err)
	}
	vehicles := p.inWords(t.Vehicles)
	if t.Sandbox {
		vehicles = "of the sandbox"
	}
	detail := fmt.Sprintf("developer %s; operations %s; vehicles %s", t.Developer, strings.Join(t.Operations.Names(), ", "), vehicles)
	err = p.audited(ctx, by, access.Event{Action: "token.issue", Object: t.ID, Detail: detail}, func(ctx context.Context) error {
		return p.cfg.Store.CreateToken(ctx, t)
	})
	if err != nil {
		return TokenRecord{}, "", err
	}
	return p.tokenRecord(t), secret, nil
}

// RevokeToken revokes once; a second time changes nothing and returns the same.
func (p *Operations) RevokeToken(ctx context.Context, by, id string) (TokenSummary, error) {
	if g, ok := p.cfg.Tokens.Get(id); ok && !g.Revoked.IsZero() {
		return p.tokenSummary(g.Token), nil
	}
	now := wireTime(p.cfg.Now())
	t, err := p.updateToken(ctx, by, access.Event{Action: "token.revoke", Object: id}, func(t *access.Token) error {
		if t.Revoked.IsZero() {
			t.Revoked = now
		}
		return nil
	})
	return p.tokenSummary(t), err
}

// GrantToken adds vehicles to a token and takes others away.
func (p *Operations) GrantToken(ctx context.Context, by, id string, add, remove []vehicle.ID) (TokenSummary, error) {
	if len(add)+len(remove) == 0 {
		return TokenSummary{}, Refuse(http.StatusBadRequest, "name the vehicles to add or to remove")
	}
	added := access.VehicleSet(add...)
	if slices.ContainsFunc(remove, added.Include) {
		return TokenSummary{}, Refuse(http.StatusBadRequest, "a vehicle is to be added and removed at once: decide")
	}
	if err := p.checkGrantable(add...); err != nil {
		return TokenSummary{}, err
	}
	now := p.cfg.Now()
	detail := "add " + p.named(len(add), slices.Values(add)) + "; remove " + p.named(len(remove), slices.Values(remove))
	t, err := p.updateToken(ctx, by, access.Event{Action: "token.grant", Object: id, Detail: detail}, func(t *access.Token) error {
		if err := t.Usable(now); err != nil {
			return Refuse(http.StatusConflict, "the token cannot be granted anything: %v", err)
		}
		v, ok := t.Vehicles.Without(remove...)
		if !ok && len(remove) > 0 {
			return Refuse(http.StatusConflict, "the token counts for all vehicles and cannot lose a few: issue one with a list instead")
		}
		reserved := access.SandboxVehicles()
		if t.Sandbox && slices.ContainsFunc(add, func(id vehicle.ID) bool { return !reserved.Include(id) }) {
			return Refuse(http.StatusConflict, "a sandbox token sees the reserved vehicles and no others")
		}
		t.Vehicles = v.With(add...)
		return nil
	})
	return p.tokenSummary(t), err
}

// RotateToken gives a token a new secret. What somebody else rotated meanwhile
// is rotated again: of two that rotate at once, both get a secret that counts,
// the first for the overlap that the second asked for.
func (p *Operations) RotateToken(ctx context.Context, by, id string, overlap time.Duration) (TokenRecord, string, error) {
	known, ok := p.cfg.Tokens.Get(id)
	if !ok {
		return TokenRecord{}, "", errNoRecord
	}
	now := p.cfg.Now()
	secret, hash := access.NewSecret(known.Kind())
	e := access.Event{Action: "token.rotate", Object: id, Detail: overlapInWords(overlap)}
	t, err := p.updateToken(ctx, by, e, func(stored *access.Token) error {
		if err := stored.Rotate(hash, overlap, now); err != nil {
			return Refuse(http.StatusConflict, "%v", err)
		}
		return nil
	})
	if err != nil {
		return TokenRecord{}, "", err
	}
	return p.tokenRecord(t), secret, nil
}

// updateToken audits and applies a change to the token that the event names.
func (p *Operations) updateToken(ctx context.Context, by string, e access.Event, change func(*access.Token) error) (t access.Token, err error) {
	if _, ok := p.cfg.Tokens.Get(e.Object); !ok {
		// Free text from a path must not reach the audit.
		return access.Token{}, errNoRecord
	}
	err = p.audited(ctx, by, e, func(ctx context.Context) (err error) {
		t, err = p.cfg.Store.UpdateToken(ctx, e.Object, change)
		return err
	})
	return t, err
}

// inWords names vehicles for people.
func (p *Operations) inWords(v access.Vehicles) string {
	if v.All() {
		return "all"
	}
	return p.named(v.Len(), v.Sorted())
}

// maxNamed bounds what the audit tells of vehicles: a list may have a million.
const maxNamed = 20

// named names the first of n vehicles, by hash, and counts the others.
func (p *Operations) named(n int, ids iter.Seq[vehicle.ID]) string {
	if n == 0 {
		return "none"
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
		b.WriteString(p.cfg.Forgotten.Hash(id).Short())
		i++
	}
	return b.String()
}

func overlapInWords(d time.Duration) string {
	if d == 0 {
		return "the old one ends at once"
	}
	return fmt.Sprintf("the old one counts for %s more", d)
}
