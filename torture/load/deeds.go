package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// operate issues and revokes tokens, adds and removes sources and forgets
// vehicles until the context ends.
func (l *Load) operate(ctx context.Context, n *nodeprocess.Node) {
	c, err := n.AdminClient()
	for ; err != nil; c, err = n.AdminClient() { // it is made once the directory is there
		if !rest(ctx) {
			return
		}
	}
	for ctx.Err() == nil {
		deed := l.deed(ctx, c)
		l.a.Offered(1)
		must := l.MustAnswer.Load()
		err := deed()
		var said *admin.Error
		switch {
		case err == nil:
			l.a.Acknowledged(1)
			l.Stats.DeedsDone.Add(1)
			l.Stats.LastDeed.Store(time.Now().UnixNano())
		case errors.As(err, &said) && said.Status == http.StatusServiceUnavailable:
			l.Stats.DeedsRefused.Add(1)
		case (!errors.As(err, &said) || said.Status == 0) && must && l.MustAnswer.Load() && ctx.Err() == nil:
			l.wrong("the admin API does not answer while the node is up: %v", err)
		case errors.As(err, &said) && said.Status != 0:
			l.wrong("the admin API answers %d: %s", said.Status, said)
		}
		if !rest(ctx) {
			return
		}
	}
}

// deed chooses what to do next.
func (l *Load) deed(ctx context.Context, c *admin.Client) func() error {
	j := l.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	k := l.deeds.IntN(20)
	switch { // what was never done comes first
	case len(j.sources) == 0:
		k = 12
	case len(j.tokens) > 0 && !slices.ContainsFunc(j.tokens, func(t *token) bool { return t.revoked }):
		k = k % 2 * 19 // revoke one or, for that may be refused, issue another
	}
	switch {
	case k < 5:
		if t := someOf(l, j.tokens, func(t *token) bool { return !t.revoked && !t.unsure }); t != nil {
			t.unsure = true
			return func() error {
				_, err := c.RevokeToken(ctx, t.id)
				return l.done(err, func() { t.unsure, t.revoked, t.changed = false, true, time.Now() })
			}
		}
	case k < 8:
		if s := someOf(l, j.sources, func(s *source) bool { return !s.removed && !s.unsure }); s != nil {
			s.unsure = true
			return func() error {
				_, err := c.RemoveSource(ctx, s.name)
				return l.done(err, func() { s.unsure, s.removed, s.changed = false, true, time.Now() })
			}
		}
	case k < 10 && len(j.one) > 0:
		vid := j.one[l.deeds.IntN(len(j.one))]
		if car := j.cars[vid]; !car.unsure && !car.forgotten {
			car.unsure = true
			return func() error {
				_, err := c.Forget(ctx, vehicle.ID(vid))
				return l.done(err, func() {
					car.unsure, car.forgotten, car.forgottenAt = false, true, time.Now()
					j.forgotten = append(j.forgotten, vid)
				})
			}
		}
	case k < 13:
		name := fmt.Sprintf("source%d", l.deeds.Uint64())
		return func() error {
			s, err := c.AddSource(ctx, name, everything, time.Time{})
			return l.done(err, func() { j.sources = append(j.sources, &source{name: s.Name, key: s.Key, changed: time.Now()}) })
		}
	}
	only, vehicles := "", everything
	if len(j.many) > 0 && l.deeds.IntN(2) == 0 {
		only = j.many[l.deeds.IntN(len(j.many))]
		vehicles = access.VehicleSet(vehicle.ID(only))
	}
	return func() error {
		t, err := c.IssueToken(ctx, access.TokenRequest{Developer: "developer", Operations: access.AllOperations, Vehicles: vehicles})
		return l.done(err, func() {
			now := time.Now()
			j.tokens = append(j.tokens, &token{id: t.ID, secret: t.AccessToken, only: only, issued: now, changed: now})
		})
	}
}

// someOf draws one of a list, nil if that is none of the wanted.
func someOf[T any](l *Load, list []*T, wanted func(*T) bool) *T {
	if len(list) == 0 {
		return nil
	}
	if x := list[l.deeds.IntN(len(list))]; wanted(x) {
		return x
	}
	return nil
}

// done notes a deed that was acknowledged.
func (l *Load) done(err error, note func()) error {
	if err != nil {
		return err
	}
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	note()
	return nil
}

// expires is how long a token lives that is to be expired when it is used.
const expires = 200 * time.Millisecond

// Enrich adds to a node at rest what operators do more seldom: a token that
// expires, one whose secret is replaced, one that loses a vehicle.
func (l *Load) Enrich(ctx context.Context, n *nodeprocess.Node) error {
	c, err := n.AdminClient()
	if err != nil {
		return err
	}
	cars := l.journal.watched(1)
	if len(cars) == 0 {
		return errors.New("there are no vehicles yet")
	}
	request := access.TokenRequest{Developer: "developer", Operations: access.AllOperations, Vehicles: everything}
	brief := request
	brief.Expires = time.Now().Add(expires)
	expired, err := c.IssueToken(ctx, brief)
	if err != nil {
		return err
	}
	replaced, err := c.IssueToken(ctx, request)
	if err != nil {
		return err
	}
	issued := time.Now()
	fresh, err := c.RotateToken(ctx, replaced.ID, 0)
	if err != nil {
		return err
	}
	rotated := time.Now()
	request.Vehicles = access.VehicleSet(vehicle.ID(cars[0]), vehicle.ID(barrierCar))
	narrowed, err := c.IssueToken(ctx, request)
	if err != nil {
		return err
	}
	narrowedIssued := time.Now()
	if _, err := c.GrantToken(ctx, narrowed.ID, nil, []vehicle.ID{vehicle.ID(barrierCar)}); err != nil {
		return err
	}
	now := time.Now()
	l.a.Offered(5)
	l.a.Acknowledged(5)
	j := l.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dead = append(j.dead, dead{expired.AccessToken, time.Time{}}, dead{replaced.AccessToken, rotated})
	j.tokens = append(j.tokens,
		&token{id: fresh.ID, secret: fresh.AccessToken, issued: issued, changed: rotated},
		&token{id: narrowed.ID, secret: narrowed.AccessToken, only: cars[0], issued: narrowedIssued, changed: now})
	return nil
}
