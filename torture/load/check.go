package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin/client"
	"carstate/internal/nodeprocess"
	"carstate/internal/ops"
	"carstate/internal/vehicle"
)

// settleLimit is how long a sample may take to be seen. A busy machine makes all
// slow; nothing is wrong before that.
const settleLimit = time.Minute

// barrierCar is the vehicle that shows how far the node has come.
const barrierCar = "manybarrier"

// errNotSeen: the node took a sample and does not show it.
var errNotSeen = errors.New("a sample that was acknowledged is not seen")

// Settle returns once all that was acknowledged before must be seen: a later
// sample is, and one that was sent after that one was seen. Samples are folded and
// followed in order, and what is folded together becomes visible in any order.
func (l *Load) Settle(ctx context.Context, n *nodeprocess.Node) error {
	for range 2 {
		sent := int64(0)
		tries := 0
		var refused error
		err := nodeprocess.Until(ctx, settleLimit, func(ctx context.Context) error {
			if n.HasEnded() {
				refused = errors.New("the node has ended")
				return nil // no use in waiting
			}
			if tries++; sent == 0 || tries%10 == 0 {
				l.barrier++
				x := sample{barrierCar, l.base + l.barrier}
				ok, err := l.postOne(ctx, n, []sample{x})
				if refused = err; err != nil {
					return nil
				}
				if ok && sent == 0 {
					sent = x.at
				}
				if sent == 0 {
					return errors.New("no sample is taken")
				}
			}
			a, err := n.Ask(ctx, nodeprocess.DrivingPath, l.token, barrierCar)
			if err == nil && (a.Status != 1 || a.Modified.Unix() < sent) {
				err = fmt.Errorf("%w: HTTP %d, status %d", errNotSeen, a.HTTP, a.Status)
			}
			return err
		})
		if refused != nil {
			return refused
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxEvents is how many events of the audit one call shows, the newest. If there
// are more, the audit is held against the journal as far as these go.
const maxEvents = 1000

// adminLimit is longer than any call of the admin API takes.
const adminLimit = 30 * time.Second

// How much is looked at after each restart.
const (
	newestCars  = 1500
	anyCars     = 500
	someRecords = 10
	someSecrets = 40 // of each kind; a caller of 100 refused tokens a minute is slowed down
)

// CheckSome holds the node to a part of the journal, the newest of it above all.
// Nothing may be under way, and the node has settled.
func (l *Load) CheckSome(ctx context.Context, n *nodeprocess.Node) error {
	l.checkCars(ctx, n, l.journal.pick(l.rnd, newestCars, anyCars), l.journal.before)
	return l.checkDeeds(ctx, n, someSecrets)
}

// CheckAll holds the node to all of the journal.
func (l *Load) CheckAll(ctx context.Context, n *nodeprocess.Node) error {
	l.checkCars(ctx, n, l.journal.all(), l.journal.before)
	if err := l.checkDeeds(ctx, n, someSecrets); err != nil {
		return err
	}
	return l.checkLists(ctx, n)
}

// checkCars asks for vehicles, several at a time. before is what the answer about one
// is held against.
func (l *Load) checkCars(ctx context.Context, n *nodeprocess.Node, cars []string, before func(vid string) car) {
	var asking sync.WaitGroup
	const askers = 4
	for part := range slices.Chunk(cars, len(cars)/askers+1) {
		asking.Go(func() {
			for _, vid := range part {
				for ctx.Err() == nil && !l.ask(ctx, n, vid, before(vid), true) {
					if n.HasEnded() {
						return
					}
					rest(ctx)
				}
			}
		})
	}
	asking.Wait()
}

// checkDeeds uses up to n of each kind of what operators did, the newest.
func (l *Load) checkDeeds(ctx context.Context, node *nodeprocess.Node, n int) error {
	c, err := node.AdminClient()
	if err != nil {
		return err
	}
	groups := make(map[[2]bool]int)
	records := l.journal.newest(func(r *record) bool {
		group := [2]bool{r.source, r.gone}
		groups[group]++
		return groups[group] <= n
	})
	for _, r := range records {
		if err := l.checkRecord(ctx, node, &r); err != nil {
			return err
		}
	}
	l.journal.mu.Lock()
	forgotten := slices.Clone(l.journal.forgotten[max(0, len(l.journal.forgotten)-n):])
	l.journal.mu.Unlock()
	l.checkCars(ctx, node, forgotten, l.journal.before)
	return l.checkStates(ctx, c)
}

// checkRecord uses the secret of a token or a source.
func (l *Load) checkRecord(ctx context.Context, node *nodeprocess.Node, r *record) error {
	if r.source {
		// An empty object is no sample: only a source whose key counts hears that.
		want := map[bool]int{false: http.StatusBadRequest, true: http.StatusUnauthorized}[r.gone]
		status, text, err := node.Post(ctx, r.secret, "{}")
		if err == nil && status != want {
			l.a.Lost("a source (removed: %t) is answered with %d: %s", r.gone, status, text)
		}
		return err
	}
	a, err := node.Ask(ctx, nodeprocess.DrivingPath, r.secret, cmp.Or(r.only, barrierCar))
	switch {
	case err != nil:
		return err
	case r.gone && a.HTTP != http.StatusUnauthorized:
		l.a.Lost("a token that was revoked is answered with %d", a.HTTP)
	case !r.gone && (a.HTTP != http.StatusOK || a.Status != 1):
		l.a.Lost("a token that was issued is answered with %d, status %d", a.HTTP, a.Status)
	case !r.gone && r.only != "":
		if a, err := node.Ask(ctx, nodeprocess.DrivingPath, r.secret, barrierCar); err == nil && a.Status != 0 {
			l.wrong("a token is answered for a vehicle that it was not granted")
		}
	}
	return nil
}

// storedLimit is how long a state may take to be stored once it is an answer.
const storedLimit = 10 * time.Second

// checkStates looks at the whole state of some vehicles: its reading is that of
// the sample whose time it bears.
func (l *Load) checkStates(ctx context.Context, c *client.Client) error {
	for _, vid := range l.journal.pick(l.rnd, 0, someRecords) {
		was := l.journal.before(vid)
		if was.unsure || was.forgotten || was.lost {
			continue
		}
		// An answer may stand before its state is stored, and what is stored is shown here.
		var r ops.VehicleRecord
		err := nodeprocess.Until(ctx, storedLimit, func(ctx context.Context) (err error) {
			if r, err = c.Vehicle(ctx, vehicle.ID(vid)); err == nil && slices.ContainsFunc(r.Readings, func(x ops.ReadingRecord) bool { return x.Time.Unix() < was.acknowledged }) {
				err = errors.New("the state is older than a sample that was acknowledged")
			}
			return err
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			l.a.Lost("%s was acknowledged with a sample of %s, and its state is of before, or missing, after %s: %v", vid, clock(was.acknowledged), storedLimit, err)
			continue
		}
		for _, reading := range r.Readings {
			x := sample{vid, reading.Time.Unix()}
			if reading.Signal == "Vehicle.Speed" && int64(*reading.Value) != x.speedKmh() {
				l.wrong("the state of %s holds %s %g of %s, which was not sent", vid, reading.Signal, *reading.Value, clock(x.at))
			}
		}
	}
	return nil
}

// checkLists compares all tokens and sources with the node's lists.
func (l *Load) checkLists(ctx context.Context, n *nodeprocess.Node) error {
	c, err := n.AdminClient()
	if err != nil {
		return err
	}
	tokens, err := c.Tokens(ctx)
	if err != nil {
		return err
	}
	sources, err := c.Sources(ctx)
	if err != nil {
		return err
	}
	listed := make(map[record]bool)
	for _, t := range tokens {
		listed[record{id: t.ID, gone: t.RevokedAt != nil}] = true
	}
	for _, s := range sources {
		listed[record{source: true, id: s.Name}] = true
	}
	events, err := c.Audit(ctx, maxEvents)
	if err != nil {
		return err
	}
	audited, since := make(map[string]bool), time.Time{}
	for _, e := range events {
		audited[e.Object] = true
	}
	if len(events) == maxEvents { // the newest; how far they go, all must be there
		since = slices.MinFunc(events, func(a, b access.Event) int { return a.Time.Compare(b.Time) }).Time
	}
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	for _, r := range l.journal.records {
		// The event is older than its acknowledgement, by less than a call takes.
		if !r.source && r.made.Add(-adminLimit).After(since) && !audited[r.id] {
			l.a.Lost("a token that was issued is not in the audit")
		}
		key := record{source: r.source, id: r.id, gone: r.gone && !r.source} // sources that were removed are not listed
		if listed[key] == (r.source && r.gone) && !r.unsure {
			l.a.Lost("a %s (revoked or removed: %t) is not listed as that", map[bool]string{true: "source", false: "token"}[r.source], r.gone)
		}
	}
	return nil
}
