package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"carstate/bench/must"
	"carstate/internal/access"
	"carstate/internal/admin/client"
	"carstate/internal/nodeprocess"
	"carstate/internal/ops"
	"carstate/internal/vehicle"
)

// settleLimit is the time limit for a sample to become visible. It is long, because a busy machine
// is slow.
const settleLimit = time.Minute

// barrierCar is the vehicle whose samples show how far the node has folded.
const barrierCar = "manybarrier"

// errNotSeen means that the node acknowledged a sample and does not show it.
var errNotSeen = errors.New("a sample that was acknowledged is not seen")

// Settle waits until everything that was acknowledged before the call must be visible. To find out,
// it sends a further sample and waits until that sample is visible, and then does the same with a
// second one. One sample is not enough: samples are folded and delivered to nodes in order, but the
// states of one fold become visible in any order.
func (l *Load) Settle(ctx context.Context, n *nodeprocess.Node) error {
	for range 2 {
		sent := int64(0)
		tries := 0
		var refused error
		err := nodeprocess.Until(ctx, settleLimit, func(ctx context.Context) error {
			if n.HasEnded() {
				refused = errors.New("the node has ended")
				return nil // waiting is pointless
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

// maxEvents is the maximum number of audit events that one call returns: the newest ones. If it
// returns that many, only tokens issued after the oldest of them are looked for in the audit.
const maxEvents = 1000

// adminLimit is longer than any call of the admin API takes.
const adminLimit = 30 * time.Second

// These limits define how much is compared after each restart.
const (
	newestCars  = 1500
	anyCars     = 500
	someRecords = 10
	someSecrets = 40 // of each kind; callers with more than 100 refused tokens a minute are slowed down
)

// CheckSome compares the node with a part of the journal, mostly its newest entries. Settle must
// have returned, and no operation may be in progress.
func (l *Load) CheckSome(ctx context.Context, n *nodeprocess.Node) {
	l.checkCars(ctx, n, l.journal.pick(l.rnd, newestCars, anyCars), l.journal.before)
	l.checkOperations(ctx, n, someSecrets)
}

// CheckAll compares the node with the whole journal.
func (l *Load) CheckAll(ctx context.Context, n *nodeprocess.Node) {
	l.checkCars(ctx, n, l.journal.all(), l.journal.before)
	l.checkOperations(ctx, n, someSecrets)
	l.checkLists(ctx, n)
}

// checkCars queries vehicles, several at a time, and compares each answer with the result of the
// function before, which is what the journal knows of the vehicle.
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

// checkOperations checks the n newest results of each kind of operation.
func (l *Load) checkOperations(ctx context.Context, node *nodeprocess.Node, n int) {
	c := must.Get(node.AdminClient())
	groups := make(map[[2]bool]int)
	records := l.journal.newest(func(r *record) bool {
		group := [2]bool{r.source, r.gone}
		groups[group]++
		return groups[group] <= n
	})
	for _, r := range records {
		l.checkRecord(ctx, node, &r)
	}
	l.journal.mu.Lock()
	forgotten := slices.Clone(l.journal.forgotten[max(0, len(l.journal.forgotten)-n):])
	l.journal.mu.Unlock()
	l.checkCars(ctx, node, forgotten, l.journal.before)
	l.checkStates(ctx, c)
}

// checkRecord uses the secret of a token or a source, and checks whether the node accepts it.
func (l *Load) checkRecord(ctx context.Context, node *nodeprocess.Node, r *record) {
	if r.source {
		// An empty object is not a sample, so a source with a valid key receives status 400
		// and any other source receives 401.
		want := map[bool]int{false: http.StatusBadRequest, true: http.StatusUnauthorized}[r.gone]
		if status, text := must.Get2(node.Post(ctx, r.secret, "{}")); status != want {
			l.a.Lost("a source (removed: %t) is answered with %d: %s", r.gone, status, text)
		}
		return
	}
	a := must.Get(node.Ask(ctx, nodeprocess.DrivingPath, r.secret, cmp.Or(r.only, barrierCar)))
	switch {
	case r.gone && a.HTTP != http.StatusUnauthorized:
		l.a.Lost("a token that was revoked is answered with %d", a.HTTP)
	case !r.gone && (a.HTTP != http.StatusOK || a.Status != 1):
		l.a.Lost("a token that was issued is answered with %d, status %d", a.HTTP, a.Status)
	case !r.gone && r.only != "":
		if a, err := node.Ask(ctx, nodeprocess.DrivingPath, r.secret, barrierCar); err == nil && a.Status != 0 {
			l.wrong("a token is answered for a vehicle that it was not granted")
		}
	}
}

// storedLimit is the time limit for storing a state that is already part of an answer.
const storedLimit = 10 * time.Second

// checkStates checks some stored states. No reading in a state may be older than the vehicle's
// newest acknowledged sample, and each speed must be that of the sample with the same time.
func (l *Load) checkStates(ctx context.Context, c *client.Client) {
	for _, vid := range l.journal.pick(l.rnd, 0, someRecords) {
		was := l.journal.before(vid)
		if was.unsure || was.forgotten || was.lost {
			continue
		}
		// An answer may be visible before its state is stored, and c.Vehicle returns the
		// stored state.
		var r ops.VehicleRecord
		err := nodeprocess.Until(ctx, storedLimit, func(ctx context.Context) (err error) {
			if r, err = c.Vehicle(ctx, vehicle.ID(vid)); err == nil &&
				slices.ContainsFunc(r.Readings, func(x ops.ReadingRecord) bool { return x.Time.Unix() < was.acknowledged }) {
				err = errors.New("the state is older than a sample that was acknowledged")
			}
			return err
		})
		must.Do(ctx.Err())
		if err != nil {
			l.a.Lost("%s was acknowledged with a sample of %s, and its state is of before, or missing, after %s: %v", vid,
				clock(was.acknowledged), storedLimit, err)
			continue
		}
		for _, reading := range r.Readings {
			x := sample{vid, reading.Time.Unix()}
			if reading.Signal == "Vehicle.Speed" && int64(*reading.Value) != x.speedKmh() {
				l.wrong("the state of %s holds %s %g of %s, which was not sent", vid, reading.Signal, *reading.Value, clock(x.at))
			}
		}
	}
}

// checkLists compares all tokens and sources of the journal with the node's lists.
func (l *Load) checkLists(ctx context.Context, n *nodeprocess.Node) {
	c := must.Get(n.AdminClient())
	tokens := must.Get(c.Tokens(ctx))
	sources := must.Get(c.Sources(ctx))
	listed := make(map[record]bool)
	for _, t := range tokens {
		listed[record{id: t.ID, gone: t.RevokedAt != nil}] = true
	}
	for _, s := range sources {
		listed[record{source: true, id: s.Name}] = true
	}
	events := must.Get(c.SearchAudit(ctx, url.Values{"limit": {strconv.Itoa(maxEvents)}})).Events
	audited, since := make(map[string]bool), time.Time{}
	for _, e := range events {
		audited[e.Object] = true
	}
	if len(events) == maxEvents { // events older than these are not returned
		since = slices.MinFunc(events, func(a, b access.Event) int { return a.Time.Compare(b.Time) }).Time
	}
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	for _, r := range l.journal.records {
		// The event of an operation is at most adminLimit older than the acknowledgement.
		if !r.source && r.made.Add(-adminLimit).After(since) && !audited[r.id] {
			l.a.Lost("a token that was issued is not in the audit")
		}
		key := record{source: r.source, id: r.id, gone: r.gone && !r.source} // removed sources are not listed
		if listed[key] == (r.source && r.gone) && !r.unsure {
			l.a.Lost("a %s (revoked or removed: %t) is not listed as that",
				map[bool]string{true: "source", false: "token"}[r.source], r.gone)
		}
	}
}
