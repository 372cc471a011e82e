package admin

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// IssueToken issues a token. The secret is to be shown once.
func (d *Deeds) IssueToken(ctx context.Context, by string, r access.TokenRequest) (access.Token, string, error) {
	if err := d.checkGrantable(slices.Collect(r.Vehicles.Sorted())...); err != nil {
		return access.Token{}, "", err
	}
	t, secret, err := access.Issue(r, d.cfg.Now())
	if err != nil {
		return access.Token{}, "", refuse(http.StatusBadRequest, "%v", err)
	}
	vehicles := d.inWords(t.Vehicles)
	if t.Sandbox {
		vehicles = "of the sandbox"
	}
	detail := fmt.Sprintf("developer %s; operations %s; vehicles %s", t.Developer, strings.Join(t.Operations.Names(), ", "), vehicles)
	err = d.do(ctx, by, access.Event{Action: "token.issue", Object: t.ID, Detail: detail}, func(ctx context.Context) error {
		return d.cfg.Keeper.CreateToken(ctx, t)
	})
	if err != nil {
		return access.Token{}, "", err
	}
	return t, secret, nil
}

// RevokeToken revokes once; a second time changes nothing and returns the same.
func (d *Deeds) RevokeToken(ctx context.Context, by, id string) (access.Token, error) {
	if g, ok := d.cfg.Tokens.Get(id); ok && !g.Revoked.IsZero() {
		return g.Token, nil
	}
	now := wireTime(d.cfg.Now())
	return d.updateToken(ctx, by, access.Event{Action: "token.revoke", Object: id}, func(t *access.Token) error {
		if t.Revoked.IsZero() {
			t.Revoked = now
		}
		return nil
	})
}

// GrantToken adds vehicles to a token and takes others away.
func (d *Deeds) GrantToken(ctx context.Context, by, id string, add, remove []vehicle.ID) (access.Token, error) {
	if len(add)+len(remove) == 0 {
		return access.Token{}, refuse(http.StatusBadRequest, "name the vehicles to add or to remove")
	}
	added := access.VehicleSet(add...)
	if slices.ContainsFunc(remove, added.Include) {
		return access.Token{}, refuse(http.StatusBadRequest, "a vehicle is to be added and removed at once: decide")
	}
	if err := d.checkGrantable(add...); err != nil {
		return access.Token{}, err
	}
	now := d.cfg.Now()
	detail := "add " + d.named(len(add), slices.Values(add)) + "; remove " + d.named(len(remove), slices.Values(remove))
	return d.updateToken(ctx, by, access.Event{Action: "token.grant", Object: id, Detail: detail}, func(t *access.Token) error {
		if err := t.Usable(now); err != nil {
			return refuse(http.StatusConflict, "the token cannot be granted anything: %v", err)
		}
		v, ok := t.Vehicles.Without(remove...)
		if !ok && len(remove) > 0 {
			return refuse(http.StatusConflict, "the token counts for all vehicles and cannot lose a few: issue one with a list instead")
		}
		reserved := access.SandboxVehicles()
		if t.Sandbox && slices.ContainsFunc(add, func(id vehicle.ID) bool { return !reserved.Include(id) }) {
			return refuse(http.StatusConflict, "a sandbox token sees the reserved vehicles and no others")
		}
		t.Vehicles = v.With(add...)
		return nil
	})
}

// RotateToken gives a token a new secret. What somebody else rotated meanwhile
// is rotated again: of two that rotate at once, both get a secret that counts,
// the first for the overlap that the second asked for.
func (d *Deeds) RotateToken(ctx context.Context, by, id string, overlap time.Duration) (access.Token, string, error) {
	known, ok := d.cfg.Tokens.Get(id)
	if !ok {
		return access.Token{}, "", errNoRecord
	}
	now := d.cfg.Now()
	secret, hash := access.NewSecret(known.Kind())
	e := access.Event{Action: "token.rotate", Object: id, Detail: overlapInWords(overlap)}
	t, err := d.updateToken(ctx, by, e, func(stored *access.Token) error {
		if err := stored.Rotate(hash, overlap, now); err != nil {
			return refuse(http.StatusConflict, "%v", err)
		}
		return nil
	})
	if err != nil {
		return access.Token{}, "", err
	}
	return t, secret, nil
}

// updateToken audits and applies a change to the token that the event names.
func (d *Deeds) updateToken(ctx context.Context, by string, e access.Event, change func(*access.Token) error) (t access.Token, err error) {
	if _, ok := d.cfg.Tokens.Get(e.Object); !ok {
		// Free text from a path must not reach the audit.
		return access.Token{}, errNoRecord
	}
	err = d.do(ctx, by, e, func(ctx context.Context) (err error) {
		t, err = d.cfg.Keeper.UpdateToken(ctx, e.Object, change)
		return err
	})
	return t, err
}

// inWords names vehicles for people.
func (d *Deeds) inWords(v access.Vehicles) string {
	if v.All() {
		return "all"
	}
	return d.named(v.Len(), v.Sorted())
}

// maxNamed bounds what the audit tells of vehicles: a list may have a million.
const maxNamed = 20

// named names the first of n vehicles, by hash, and counts the others.
func (d *Deeds) named(n int, ids iter.Seq[vehicle.ID]) string {
	if n == 0 {
		return "none"
	}
	if d.cfg.VehicleName == nil {
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
		b.WriteString(d.cfg.VehicleName(id))
		i++
	}
	return b.String()
}
