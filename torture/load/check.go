package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
	"carstate/internal/nodeprocess"
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
	for _, t := range newest(&l.journal.mu, &l.journal.tokens, n, func(t *token) bool { return !t.unsure && !t.revoked }) {
		vid := t.only
		if vid == "" {
			vid = barrierCar
		}
		a, err := node.Ask(ctx, nodeprocess.DrivingPath, t.secret, vid)
		if err != nil {
			return err
		}
		if a.HTTP != http.StatusOK || a.Status != 1 {
			l.lost(t.changed, "a token that was issued is answered with %d, status %d", a.HTTP, a.Status)
		}
		if t.only != "" {
			if a, err := node.Ask(ctx, nodeprocess.DrivingPath, t.secret, barrierCar); err == nil && a.Status != 0 {
				l.undone(t.changed, "a token is answered for a vehicle that it was not granted")
			}
		}
	}
	for _, t := range newest(&l.journal.mu, &l.journal.tokens, n, func(t *token) bool { return !t.unsure && t.revoked }) {
		if a, err := node.Ask(ctx, nodeprocess.DrivingPath, t.secret, barrierCar); err != nil {
			return err
		} else if a.HTTP != http.StatusUnauthorized {
			l.lost(t.changed, "a token that was revoked is answered with %d", a.HTTP)
		}
	}
	l.journal.mu.Lock()
	ended := slices.Clone(l.journal.dead)
	l.journal.mu.Unlock()
	for _, d := range ended {
		if a, err := node.Ask(ctx, nodeprocess.DrivingPath, d.secret, barrierCar); err != nil {
			return err
		} else if a.HTTP != http.StatusUnauthorized {
			l.undone(d.since, "a secret that expired or was replaced is answered with %d", a.HTTP)
		}
	}
	for _, s := range newest(&l.journal.mu, &l.journal.sources, n, func(s *source) bool { return !s.unsure }) {
		status, text, err := node.Post(ctx, s.key, "{}")
		if err != nil {
			return err
		}
		// An empty object is no sample: whose key counts is told so.
		want := map[bool]int{false: http.StatusBadRequest, true: http.StatusUnauthorized}[s.removed]
		if status != want {
			l.lost(s.changed, "a source (removed: %t) is answered with %d: %s", s.removed, status, text)
		}
	}
	l.journal.mu.Lock()
	forgotten := slices.Clone(l.journal.forgotten[max(0, len(l.journal.forgotten)-n):])
	l.journal.mu.Unlock()
	l.checkCars(ctx, node, forgotten, l.journal.before)
	return l.checkRecords(ctx, c)
}

// checkRecords looks at the whole state of some vehicles: its reading is that of
// the sample whose time it bears.
func (l *Load) checkRecords(ctx context.Context, c *admin.Client) error {
	for _, vid := range l.journal.pick(l.rnd, 0, someRecords) {
		was := l.journal.before(vid)
		if was.unsure || was.forgotten || was.lost {
			continue
		}
		r, err := c.Vehicle(ctx, vehicle.ID(vid))
		if err != nil {
			return err
		}
		for _, reading := range r.Readings {
			x := sample{vid, reading.Time.Unix()}
			if reading.Time.Unix() < was.acknowledged {
				l.lost(was.after(x.at), "the state of %s holds %s of %s, and a sample of %s was acknowledged", vid, reading.Signal, clock(x.at), clock(was.acknowledged))
			} else if reading.Signal == "Vehicle.Speed" && int64(*reading.Value) != x.speedKmh() {
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
	revoked, present := make(map[string]bool), make(map[string]bool)
	for _, t := range tokens {
		revoked[t.ID] = t.RevokedAt != nil
	}
	for _, s := range sources {
		present[s.Name] = true
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
	for _, t := range l.journal.tokens {
		// The event is older than its acknowledgement, by less than a call takes.
		if t.issued.Add(-adminLimit).After(since) && !audited[t.id] {
			l.lost(t.issued, "a token that was issued is not in the audit")
		}
		if is, ok := revoked[t.id]; !t.unsure && (!ok || is != t.revoked) {
			l.lost(t.changed, "a token (revoked: %t) is listed %t, revoked %t", t.revoked, ok, is)
		}
	}
	for _, s := range l.journal.sources {
		if !s.unsure && present[s.name] == s.removed {
			l.lost(s.changed, "a source (removed: %t) is listed: %t", s.removed, present[s.name])
		}
	}
	return nil
}

// newest returns copies of the last n of a list that are wanted.
func newest[T any](mu *sync.Mutex, list *[]*T, n int, wanted func(*T) bool) (found []T) {
	mu.Lock()
	defer mu.Unlock()
	for _, x := range slices.Backward(*list) {
		if len(found) == n {
			break
		}
		if wanted(x) {
			found = append(found, *x)
		}
	}
	return found
}
