package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin/client"
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
		var said *client.Error
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
func (l *Load) deed(ctx context.Context, c *client.Client) func() error {
	j := l.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	k := l.deeds.IntN(20)
	all, live := make(map[bool]int), make(map[bool][]*record) // by whether they are of sources
	for _, r := range j.records {
		if all[r.source]++; !r.gone && !r.unsure {
			live[r.source] = append(live[r.source], r)
		}
	}
	switch { // what was never done comes first
	case all[true] == 0:
		k = 12
	case all[false] > 0 && all[false] == len(live[false]):
		k = k % 2 * 19 // revoke one or, for that may be refused, issue another
	}
	switch from := live[k >= 5]; {
	case k < 8 && len(from) > 0:
		r := from[l.deeds.IntN(len(from))]
		r.unsure = true
		return func() (err error) {
			if r.source {
				_, err = c.RemoveSource(ctx, r.id)
			} else {
				_, err = c.RevokeToken(ctx, r.id)
			}
			return l.done(err, func() { r.unsure, r.gone, r.changed = false, true, time.Now() })
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
			return l.done(err, func() {
				j.records = append(j.records, &record{source: true, id: s.Name, secret: s.Key, changed: time.Now()})
			})
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
			j.records = append(j.records, &record{id: t.ID, secret: t.AccessToken, only: only, made: now, changed: now})
		})
	}
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
	j.records = append(j.records,
		&record{secret: expired.AccessToken, gone: true, replaced: true}, &record{secret: replaced.AccessToken, gone: true, replaced: true, changed: rotated},
		&record{id: fresh.ID, secret: fresh.AccessToken, made: issued, changed: rotated},
		&record{id: narrowed.ID, secret: narrowed.AccessToken, only: cars[0], made: narrowedIssued, changed: now})
	return nil
}
