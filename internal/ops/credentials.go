package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/vehicle"
)

// After an error of the store, Create may have stored the record, but its secret is lost.
func (p *Operations) Create(ctx context.Context, by access.Actor, r access.Credential) (access.Credential, string, error) {
	if err := mayChange(by, r.Kind); err != nil {
		return access.Credential{}, "", err
	}
	if err := p.checkGrantable(r.Vehicles.Sorted()...); err != nil {
		return access.Credential{}, "", err
	}
	c, secret, err := access.New(r, p.cfg.Now())
	if err != nil {
		return access.Credential{}, "", Refusalf(http.StatusBadRequest, "%v", err)
	}
	e := access.Event{Action: r.Kind.Policy().Noun + "." + r.Kind.Policy().Begin, Object: c.Name}
	if c.Developer != "" {
		e.Detail = fmt.Sprintf("developer %q; operations %s; ", c.Developer, strings.Join(c.Operations.Names(), ", "))
	}
	if c.Kind != access.OperatorKind {
		vehicles := p.inWords(c.Vehicles)
		if c.Sandbox() {
			vehicles = "of the sandbox"
		}
		e.Detail += fmt.Sprintf("vehicles %s; expires %s; rate %s", vehicles, expiryInWords(c.Expires),
			inwords.RateLimit(c.RateText()))
	}
	if c.Strict {
		e.Detail += "; strict"
	}
	if c.ReadOnly {
		e.Detail = "read-only"
	}
	if text := c.OnChange.String(); text != "" {
		e.Detail += "; on change " + text
	}
	if c.Format != nil {
		e.Detail += "; format " + c.Format.Name()
	}
	if c.TrustedCrowd != nil {
		e.Detail += fmt.Sprintf("; trusted crowd %t", *c.TrustedCrowd)
	}
	if err := p.Audited(ctx, by, e, func(ctx context.Context) error { return p.cfg.Store.Create(ctx, c) }); err != nil {
		return access.Credential{}, "", err
	}
	return c, secret, nil
}

// Of two callers at the same time, the second replaces the secret that the first has received.
func (p *Operations) Rotate(
	ctx context.Context, by access.Actor, kind access.Kind, name string, overlap time.Duration,
) (access.Credential, string, error) {
	if known, ok := p.cfg.Tables.Of(kind).Get(name); ok {
		kind = known.Kind // it may be a sandbox token
	}
	detail := ""
	switch {
	case kind.Policy().Overlap && overlap == 0:
		detail = "the old one ends at once"
	case kind.Policy().Overlap:
		detail = "the old one stays valid for another " + inwords.Duration(overlap)
	}
	now := p.cfg.Now()
	secret, hash := access.NewSecret(kind)
	c, err := p.update(ctx, by, kind, "rotate", name, detail, func(c *access.Credential) error {
		if err := c.Rotate(hash, overlap, now); err != nil {
			return Refusalf(http.StatusConflict, "%v", err)
		}
		return nil
	})
	if err != nil {
		return access.Credential{}, "", err
	}
	return c, secret, nil
}

// End also ends the sessions of an operator. Ending again changes nothing.
func (p *Operations) End(
	ctx context.Context, by access.Actor, kind access.Kind, name string,
) (access.Credential, error) {
	now := wireTime(p.cfg.Now())
	return p.update(ctx, by, kind, kind.Policy().End, name, "", func(c *access.Credential) error {
		if c.Ended.IsZero() {
			c.Ended = now
		}
		return nil
	})
}

func (p *Operations) GrantToken(
	ctx context.Context, by access.Actor, id string, add, remove []vehicle.ID,
) (access.Credential, error) {
	if len(add)+len(remove) == 0 {
		return access.Credential{}, Refusalf(http.StatusBadRequest, "name the vehicles to add or to remove")
	}
	added := access.VehicleSet(add...)
	if slices.ContainsFunc(remove, added.Include) {
		return access.Credential{}, Refusalf(http.StatusBadRequest, "a vehicle is in both add and remove")
	}
	if err := p.checkGrantable(add...); err != nil {
		return access.Credential{}, err
	}
	now := p.cfg.Now()
	detail := "add " + p.named(add) + "; remove " + p.named(remove)
	return p.update(ctx, by, access.TokenKind, "grant", id, detail, func(t *access.Credential) error {
		if err := t.Usable(now); err != nil {
			return Refusalf(http.StatusConflict, "the token's vehicles cannot be changed: %v", err)
		}
		if t.Vehicles.All() && len(remove) > 0 {
			return Refusalf(http.StatusConflict,
				"the token covers all vehicles, so single ones cannot be removed: issue one with a list instead")
		}
		reserved := access.SandboxVehicles()
		if t.Sandbox() && slices.ContainsFunc(add, func(id vehicle.ID) bool { return !reserved.Include(id) }) {
			return Refusalf(http.StatusConflict, "a sandbox token sees the reserved vehicles and no others")
		}
		if err := t.SetVehicles(t.Vehicles.Without(remove...).With(add...)); err != nil {
			return Refusalf(http.StatusConflict, "%v", err)
		}
		return nil
	})
}

func (p *Operations) ChangeCredential(
	ctx context.Context, by access.Actor, kind access.Kind, name string, to access.Change,
) (access.Credential, error) {
	var details []string
	if v := to.Vehicles; v != nil {
		if err := p.checkGrantable(v.Sorted()...); err != nil {
			return access.Credential{}, err
		}
		details = append(details, "vehicles "+p.inWords(*v))
	}
	if to.Expires != nil {
		details = append(details, "expires "+expiryInWords(*to.Expires))
	}
	if to.Rate != nil {
		details = append(details, "rate "+inwords.RateLimit(to.Rate.String()))
	}
	if to.Strict != nil {
		details = append(details, fmt.Sprintf("strict %t", *to.Strict))
	}
	if to.OnChange != nil {
		details = append(details, "on change "+cmp.Or(to.OnChange.String(), "auto"))
	}
	if to.Format != nil {
		details = append(details, "format "+(*to.Format).Name())
	}
	if to.TrustedCrowd != nil {
		details = append(details, fmt.Sprintf("trusted crowd %t", *to.TrustedCrowd))
	}
	if details == nil {
		return access.Credential{},
			Refusalf(http.StatusBadRequest, "nothing to change: give what to change, such as the rate")
	}
	now := p.cfg.Now()
	return p.update(ctx, by, kind, "change", name, strings.Join(details, "; "), func(c *access.Credential) error {
		switch err := c.Change(to, now); {
		case errors.Is(err, access.ErrRevoked):
			return Refusalf(http.StatusConflict, "the %s cannot be changed: %v", kind.Policy().Noun, err)
		case err != nil:
			return Refusalf(http.StatusBadRequest, "%v", err)
		}
		return nil
	})
}

func (p *Operations) update(
	ctx context.Context, by access.Actor, kind access.Kind, verb, name, detail string,
	change func(*access.Credential) error,
) (c access.Credential, err error) {
	if err := mayChange(by, kind); err != nil {
		return access.Credential{}, err
	}
	known, ok := p.cfg.Tables.Of(kind).Get(name)
	if !ok || !known.Ended.IsZero() && !kind.Policy().Listed && verb != kind.Policy().End {
		// name may be any text, so it must not reach the audit.
		return access.Credential{}, noRecord(kind.Policy().Noun)
	}
	// change is tried on a copy first. A rotation always changes something, so it is not tried.
	if after := known.Credential; verb != "rotate" && !by.ReadOnly && change(&after) == nil &&
		reflect.DeepEqual(after, known.Credential) {
		return after, nil // nothing changes, so there is no event
	}
	e := access.Event{Action: kind.Policy().Noun + "." + verb, Object: name, Detail: detail}
	err = p.Audited(ctx, by, e, func(ctx context.Context) (err error) {
		c, err = p.cfg.Store.Update(ctx, kind, name, change)
		return err
	})
	return c, err
}

func (p *Operations) Credentials(kind access.Kind) []*access.Grant {
	if kind.Policy().Listed {
		return p.cfg.Tables.Of(kind).All()
	}
	return p.cfg.Tables.Of(kind).List()
}

// Credential also returns an ended credential, until the name is used again.
func (p *Operations) Credential(kind access.Kind, name string) (*access.Grant, error) {
	if g, ok := p.cfg.Tables.Of(kind).Get(name); ok {
		return g, nil
	}
	return nil, noRecord(kind.Policy().Noun)
}

// An operator who could add others could keep access after being removed.
var errAdminOnly = Refusalf(http.StatusForbidden, "this needs the admin key: an operator's key is not enough")

func mayChange(by access.Actor, kind access.Kind) error {
	if kind.Policy().AdminOnly && !by.Admin {
		return errAdminOnly
	}
	return nil
}

// inWords lists short hashes, because the audit has no vids.
func (p *Operations) inWords(v access.Vehicles) string {
	if v.All() {
		return "all"
	}
	return p.named(v.Sorted())
}

// An event lists at most maxNamed vehicles: a grant may have 10,000.
const maxNamed = 20

// If named leaves out vehicles, notAllListed must match its text.
func (p *Operations) named(ids []vehicle.ID) string {
	if len(ids) == 0 {
		return "none"
	}
	var short []string
	for _, id := range ids[:min(len(ids), maxNamed)] {
		short = append(short, p.cfg.Forgotten.Hash(id).Short())
	}
	text := strings.Join(short, ", ")
	if more := len(ids) - maxNamed; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

func expiryInWords(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
