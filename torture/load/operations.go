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

// operate issues and revokes tokens, adds and removes sources and forgets vehicles until
// ctx ends.
func (l *Load) operate(ctx context.Context, n *nodeprocess.Node) {
	c, err := n.AdminClient()
	for ; err != nil; c, err = n.AdminClient() { // it succeeds once the data directory exists
		if !rest(ctx) {
			return
		}
	}
	for ctx.Err() == nil {
		operation := l.operation(ctx, c)
		l.a.Offered(1)
		err := operation()
		var said *client.Error
		switch {
		case err == nil:
			l.a.Acknowledged(1)
		case errors.As(err, &said) && said.Status != 0 && said.Status != http.StatusServiceUnavailable:
			l.wrong("the admin API answers %d: %s", said.Status, said)
		}
		if !rest(ctx) {
			return
		}
	}
}

// operation returns the next operation, chosen at random.
func (l *Load) operation(ctx context.Context, c *client.Client) func() error {
	j := l.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	k := l.choices.IntN(20)
	all, live := make(map[bool]int), make(map[bool][]*record) // by whether they are sources
	for _, r := range j.records {
		if all[r.source]++; !r.gone && !r.unsure {
			live[r.source] = append(live[r.source], r)
		}
	}
	switch { // operations that were never done come first
	case all[true] == 0:
		k = 12
	case all[false] > 0 && all[false] == len(live[false]):
		k = k % 2 * 19 // revoke one, or issue another, since the revocation may fail
	}
	switch from := live[k >= 5]; {
	case k < 8 && len(from) > 0:
		r := from[l.choices.IntN(len(from))]
		r.unsure = true
		return func() (err error) {
			if r.source {
				_, err = c.RemoveSource(ctx, r.id)
			} else {
				_, err = c.RevokeToken(ctx, r.id)
			}
			return l.done(err, func() { r.unsure, r.gone = false, true })
		}
	case k < 10 && len(j.one) > 0:
		vid := j.one[l.choices.IntN(len(j.one))]
		if car := j.cars[vid]; !car.unsure && !car.forgotten {
			car.unsure = true
			return func() error {
				_, err := c.Forget(ctx, vehicle.ID(vid))
				return l.done(err, func() {
					car.unsure, car.forgotten = false, true
					j.forgotten = append(j.forgotten, vid)
				})
			}
		}
	case k < 13:
		name := fmt.Sprintf("source%d", l.choices.Uint64())
		return func() error {
			s, err := c.AddSource(ctx, access.Request{Name: name, Vehicles: everything})
			return l.done(err, func() {
				j.records = append(j.records, &record{source: true, id: s.Name, secret: s.Key})
			})
		}
	}
	only, vehicles := "", everything
	if len(j.many) > 0 && l.choices.IntN(2) == 0 {
		only = j.many[l.choices.IntN(len(j.many))]
		vehicles = access.VehicleSet(vehicle.ID(only))
	}
	return func() error {
		t, err := c.IssueToken(ctx, access.Request{Developer: "developer", Operations: access.AllOperations,
			Vehicles: vehicles})
		return l.done(err, func() {
			j.records = append(j.records, &record{id: t.ID, secret: t.AccessToken, only: only, made: time.Now()})
		})
	}
}

// done calls note, with the journal locked, if the operation was
// acknowledged, which means that err is nil.
func (l *Load) done(err error, note func()) error {
	if err != nil {
		return err
	}
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	note()
	return nil
}
