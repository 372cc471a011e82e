package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
)

type journal struct {
	mu   sync.Mutex
	cars map[string]*car
	// one holds vehicles with only one sample, whose loss no later sample can hide; many the others
	// but barrierCar.
	one, many []string
	records   []*record
	forgotten []string
}

// Times of the newest samples, in Unix seconds; 0: none.
type car struct {
	offered      int64
	acknowledged int64
	seen         int64
	// unsure: it is unknown whether the vehicle is forgotten. lost: reported, so not checked again.
	unsure, forgotten, lost bool
}

type record struct {
	source, gone, unsure bool   // gone: revoked or removed
	id                   string // of a token; the name of a source
	secret               string
	only                 string // the only vehicle of a token
	made                 time.Time
}

// NoteOffered is also for rows with their own senders. at is in Unix seconds.
func (j *journal) NoteOffered(vid string, at int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.cars[vid]
	if c == nil {
		c = new(car)
		j.cars[vid] = c
	}
	c.offered = max(c.offered, at)
}

func (j *journal) NoteAcknowledged(vid string, at int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.cars[vid]
	switch {
	case c.acknowledged != 0 || vid == barrierCar:
	case strings.HasPrefix(vid, "one"): // see fleet.once
		j.one = append(j.one, vid)
	default:
		j.many = append(j.many, vid)
	}
	c.acknowledged = max(c.acknowledged, at)
}

func (j *journal) before(vid string) car {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.cars[vid]; c != nil {
		return *c
	}
	return car{}
}

// was is from before the query. settled: everything acknowledged must be visible.
func (l *Load) check(vid string, was car, a nodeprocess.Answer, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cars[vid]
	if c == nil {
		if a.Status != 0 {
			l.a.Wrong("%s has never reported and is answered for", vid)
		}
		return
	}
	at := a.Modified.Unix()
	switch {
	case a.HTTP != http.StatusOK:
		l.a.Wrong("%s is answered with %d", vid, a.HTTP)
	case was.forgotten && a.Status != 0:
		l.a.Wrong("%s was forgotten and is back", vid)
	case c.unsure || c.forgotten || c.lost:
	case a.Status == 0 && settled && was.acknowledged != 0:
		c.lost = true
		l.a.Lost("%s was acknowledged with a sample of %s and is unknown", vid, clock(was.acknowledged))
	case a.Status == 0 && was.seen != 0:
		l.a.Wrong("%s had a state of %s and is unknown now", vid, clock(was.seen))
	case a.Status == 0:
	case a.Driving != "1":
		l.a.Wrong("%s drives normally, and the answer is %q", vid, a.Driving)
	case at > c.offered:
		l.a.Wrong("%s has a state of %s, but no such sample was sent", vid, clock(at))
	case settled && at < was.acknowledged:
		c.lost = true
		l.a.Lost("%s was acknowledged with a sample of %s, and its state is of %s", vid, clock(was.acknowledged), clock(at))
	case at < was.seen:
		l.a.Wrong("%s went back in time: its state was of %s and is of %s", vid, clock(was.seen), clock(at))
	default:
		c.seen = max(c.seen, at)
	}
}

func clock(s int64) string { return time.Unix(s, 0).UTC().Format(time.TimeOnly) }

func (j *journal) pick(rnd *rand.Rand, newest, any int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	picked := slices.Clone(j.one[max(0, len(j.one)-newest):])
	all := slices.Concat(j.one, j.many)
	for range min(any, len(all)) {
		picked = append(picked, all[rnd.IntN(len(all))])
	}
	return picked
}

// forget chooses a vehicle, or none.
func (j *journal) forget(rnd *rand.Rand) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.one) == 0 {
		return ""
	}
	vid := j.one[rnd.IntN(len(j.one))]
	if c := j.cars[vid]; !c.unsure && !c.forgotten {
		c.unsure = true
		return vid
	}
	return ""
}

func (j *journal) isForgotten(vid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cars[vid].unsure, j.cars[vid].forgotten = false, true
	j.forgotten = append(j.forgotten, vid)
}

func (j *journal) Vehicles() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Concat(j.one, j.many)
}

func (j *journal) watched(n int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.many[:min(n, len(j.many))])
}

const (
	readyLimit  = 2 * time.Minute
	holdLimit   = 5 * time.Minute // of a check of all vehicles
	settleLimit = time.Minute     // for a sample to become visible
	adminLimit  = 30 * time.Second
)

// Refused reports a finding, unless the node was killed.
func (l *Load) Refused(err error) error {
	if e, ok := errors.AsType[*nodeprocess.EndedError](err); ok && e.Code >= 0 {
		l.a.Wrong("it does not start after kill -9: %s", e.Last)
		return err
	}
	return nil
}

func (l *Load) Start(ctx context.Context, o nodeprocess.Options) (*nodeprocess.Node, error) {
	n, err := nodeprocess.Start(ctx, o)
	if err != nil {
		return nil, errors.Join(l.Refused(err), err)
	}
	if err := n.AwaitReady(ctx, readyLimit); err != nil {
		if ctx.Err() == nil {
			l.a.Wrong("it is not ready after kill -9: %v", err)
		}
		n.Kill()
		return nil, err
	}
	return n, nil
}

// Hold asks about some cars at once, waits until the answers include everything acknowledged, and then
// calls look.
func (l *Load) Hold(ctx context.Context, n *nodeprocess.Node, look func(context.Context, *nodeprocess.Node)) {
	for _, vid := range l.watched(watchedCars) {
		l.ask(ctx, n, vid, l.before(vid), false)
	}
	err := l.settle(ctx, n)
	settled := err == nil
	if settled {
		err = must.Caught(func() { look(ctx, n) })
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case n.HasEnded():
		l.a.Wrong("it ended by itself: %s", n.LastLine())
	case settled:
	case errors.Is(err, errNotSeen):
		l.a.Lost("%v", err)
	default:
		l.a.Wrong("%v", err)
	}
	must.Do(err)
}

func (l *Load) End(n *nodeprocess.Node) {
	l.a.Figure(checked, float64(l.did.Of(checked)), "")
	l.a.Figure("vehicles in the journal", float64(len(l.Vehicles())), "")
	l.a.Figure("vehicles forgotten", float64(len(l.forgotten)), "")
	for _, name := range []string{posted, published, issued, revoked, added} {
		l.a.Some(name, l.did.Of(name))
	}
	l.a.Figure(removed, float64(l.did.Of(removed)), "")
	if err := n.Stop(); err != nil {
		l.a.Wrong("it does not stop in order: %v", err)
	}
}

func (l *Load) HoldVehicles(ctx context.Context, n *nodeprocess.Node, vids []string) {
	if len(vids) == 0 {
		l.a.Wrong("no sample of any vehicle was acknowledged, so the row proves nothing about them")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	was := make(map[string]car, len(vids))
	for _, vid := range vids {
		was[vid] = l.before(vid)
	}
	l.Hold(ctx, n, func(ctx context.Context, n *nodeprocess.Node) {
		l.checkCars(ctx, n, vids, func(vid string) car { return was[vid] })
		if n.HasEnded() {
			must.Fail("the node has ended")
		}
		must.Do(ctx.Err())
	})
}

func (l *Load) watch(ctx context.Context, n *nodeprocess.Node, number int) {
	for ctx.Err() == nil {
		cars := l.watched(watchedCars)
		if len(cars) == 0 {
			rest(ctx)
		}
		for i := number; i < len(cars) && ctx.Err() == nil; i += watchers {
			if !l.ask(ctx, n, cars[i], l.before(cars[i]), false) {
				rest(ctx)
			}
		}
	}
}

// ask reports whether the node answered.
func (l *Load) ask(ctx context.Context, n *nodeprocess.Node, vid string, was car, settled bool) bool {
	a, err := n.Ask(ctx, nodeprocess.DrivingPath, l.token, vid)
	if ctx.Err() != nil || err != nil || a.HTTP == http.StatusServiceUnavailable {
		return false
	}
	l.did.Add(checked, 1)
	l.check(vid, was, a, settled)
	return true
}

// When an answer includes the sample of barrierCar, all earlier ones are folded: there is one partition.
const barrierCar = "manybarrier"

var errNotSeen = errors.New("a sample that was acknowledged is not seen")

func (l *Load) settle(ctx context.Context, n *nodeprocess.Node) error {
	var x Sample
	if err := nodeprocess.Until(ctx, settleLimit, func(ctx context.Context) error {
		l.barrier++
		x = Sample{barrierCar, l.base + l.barrier}
		ok, err := l.Post(ctx, n, []Sample{x})
		if !ok && err == nil {
			err = errors.New("no sample is taken")
		}
		return err
	}); err != nil {
		return err
	}
	if err := n.AwaitAnswer(ctx, settleLimit, l.token, barrierCar, time.Unix(x.At, 0)); err != nil {
		return fmt.Errorf("%w: %w", errNotSeen, err)
	}
	return nil
}

// Tokens issued before the oldest event are not looked for.
const maxEvents = 1000

const (
	watchedCars = 200
	newestCars  = 1500
	anyCars     = 500
	someRecords = 10
	someSecrets = 160
)

func (l *Load) CheckSome(ctx context.Context, n *nodeprocess.Node) {
	l.checkCars(ctx, n, l.pick(l.rnd, newestCars, anyCars), l.before)
	l.checkOperations(ctx, n, someSecrets)
}

func (l *Load) CheckAll(ctx context.Context, n *nodeprocess.Node) {
	l.checkCars(ctx, n, l.Vehicles(), l.before)
	l.checkOperations(ctx, n, math.MaxInt)
	l.checkAudit(ctx, n)
}

func (l *Load) checkCars(ctx context.Context, n *nodeprocess.Node, cars []string, before func(vid string) car) {
	const askers = 4
	must.Together(ctx, askers, func(ctx context.Context, asker int) {
		for i := asker; i < len(cars); i += askers {
			for ctx.Err() == nil && !l.ask(ctx, n, cars[i], before(cars[i]), true) {
				if n.HasEnded() {
					return
				}
				rest(ctx)
			}
		}
	})
}

// No operator is at work during checks.
func (l *Load) checkOperations(ctx context.Context, node *nodeprocess.Node, newest int) {
	records, forgotten := l.records, l.forgotten
	for _, r := range records[max(0, len(records)-newest):] {
		if !r.unsure {
			l.checkRecord(ctx, node, r)
		}
	}
	l.checkCars(ctx, node, forgotten[max(0, len(forgotten)-newest):], l.before)
	c := must.Get(node.AdminClient())
	for _, vid := range l.pick(l.rnd, 0, someRecords) {
		if was := l.before(vid); !was.unsure && !was.forgotten && !was.lost {
			l.checkState(ctx, c, vid, was)
		}
	}
}

func (l *Load) checkRecord(ctx context.Context, node *nodeprocess.Node, r *record) {
	if r.source {
		// An empty object is no sample: a valid key receives 400.
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
			l.a.Wrong("a token is answered for a vehicle that it was not granted")
		}
	}
}

// Each speed must be that of the sample of its time.
func (l *Load) checkState(ctx context.Context, c *client.Client, vid string, was car) {
	r, err := c.Vehicle(ctx, vehicle.ID(vid))
	must.Do(ctx.Err())
	if err != nil ||
		slices.ContainsFunc(r.Readings, func(x ops.ReadingRecord) bool { return x.Time.Unix() < was.acknowledged }) {
		l.a.Lost("%s was acknowledged with a sample of %s, and its state is of before, or missing: %v", vid,
			clock(was.acknowledged), err)
		return
	}
	for _, reading := range r.Readings {
		x := Sample{vid, reading.Time.Unix()}
		if reading.Signal == "Vehicle.Speed" && int64(*reading.Value) != x.speedKmh() {
			l.a.Wrong("the state of %s holds %s %g of %s, which was not sent", vid, reading.Signal, *reading.Value, clock(x.At))
		}
	}
}

func (l *Load) checkAudit(ctx context.Context, n *nodeprocess.Node) {
	events := must.Get(must.Get(n.AdminClient()).SearchAudit(ctx, url.Values{"limit": {strconv.Itoa(maxEvents)}})).Events
	audited, since := make(map[string]bool), time.Time{}
	for _, e := range events {
		audited[e.Object] = true
	}
	if len(events) == maxEvents {
		since = slices.MinFunc(events, func(a, b access.Event) int { return a.Time.Compare(b.Time) }).Time
	}
	for _, r := range l.records {
		// The event is at most adminLimit older than the acknowledgement.
		if !r.source && r.made.Add(-adminLimit).After(since) && !audited[r.id] {
			l.a.Lost("a token that was issued is not in the audit")
		}
	}
}
