package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/row"
	"example.org/carstate/torture/writers"
)

type following struct {
	a *row.Attempt

	mu sync.Mutex // guards at
	at map[vehicle.ID]signal.UnixMilli
}

func (f *following) run(ctx context.Context, e *cluster.Engine, complete func()) {
	if err := e.FollowAnswers(ctx, f.put, complete); err != nil && ctx.Err() == nil {
		f.a.Wrong("the answers cannot be followed: %v", err)
	}
}

func (f *following) put(id vehicle.ID, a *store.Answer) {
	at := max(a.Driving.Time, a.Throttle.Time)
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.at[id]; at < was {
		f.a.Wrong("the answer for %s goes back by %s, to %s", id, was.Sub(at), at.Time().Format("15:04:05.000"))
	}
	f.at[id] = at
}

func (f *following) known(id vehicle.ID) (driving, throttle signal.UnixMilli) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[id], f.at[id]
}

func (f *following) newerThan(when signal.UnixMilli) error {
	wanted := make(map[vehicle.ID]signal.UnixMilli)
	for _, id := range layout.All() {
		wanted[id] = when + 1
	}
	return f.reached(wanted)
}

func (f *following) someNewerThan(when signal.UnixMilli) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(slices.Collect(maps.Values(f.at)), func(at signal.UnixMilli) bool { return at > when }) {
		return nil
	}
	return fmt.Errorf("no state is of after %s", when.Time().Format("15:04:05.000"))
}

func (f *following) reached(wanted map[vehicle.ID]signal.UnixMilli) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, at := range wanted {
		if f.at[id] < at {
			return fmt.Errorf("the state of %s is not of after %s, but %s older", id, at.Time().Format("15:04:05.000"),
				at.Sub(f.at[id]))
		}
	}
	return nil
}

// A copy of this age is current: the heartbeat of the feed arrives every second.
const current = 2500 * time.Millisecond

type watching struct {
	frozen [carstates]atomic.Bool // not asked

	mu     sync.Mutex // guards the fields below
	oldest time.Duration
	seen   [carstates]look
}

type look struct {
	at      time.Time
	age     time.Duration
	refused time.Time // when it was last not ready to store
	old     time.Time // when its copy was last not current
}

func (w *watching) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.oldest, w.seen = 0, [carstates]look{}
}

func (w *watching) run(ctx context.Context, i int, n *nodeprocess.Node) {
	for ; ctx.Err() == nil; row.Pause(ctx, 250*time.Millisecond) {
		if !w.frozen[i].Load() {
			w.ask(ctx, i, n)
		}
	}
}

func (w *watching) ask(ctx context.Context, i int, n *nodeprocess.Node) {
	notReady := n.Ready(ctx)
	m, err := n.Metrics(ctx)
	if err != nil || w.frozen[i].Load() {
		return // system.ask reports errors
	}
	var age time.Duration
	for name, v := range m {
		if strings.HasPrefix(name, "carstate_feed_age_seconds{") {
			age = max(age, time.Duration(v*float64(time.Second)))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.oldest = max(w.oldest, age)
	l := &w.seen[i]
	l.at, l.age = now, age
	if notReady != nil {
		l.refused = now
	}
	if age > current {
		l.old = now
	}
}

func (w *watching) healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, l := range w.seen {
		if l.at.IsZero() || l.at.Equal(l.refused) || l.at.Equal(l.old) {
			return fmt.Errorf("node %d is not ready, or its copy is %s old", i, l.age.Round(100*time.Millisecond))
		}
	}
	return nil
}

func (w *watching) greatestAge() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.oldest
}

// feedsBehind returns for how long a copy remained too old after its node could store again.
func (w *watching) feedsBehind() (longest time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.seen {
		if !l.refused.IsZero() {
			longest, ok = max(longest, l.old.Sub(l.refused)), true
		}
	}
	return max(longest, 0), ok
}

func (s *system) compare(ctx context.Context) {
	acked := s.load.Newest()
	s.promise(ctx, settleWithin, "in the end", func() error { return s.follow.reached(acked) })
	for i, n := range s.nodes {
		for id, at := range acked {
			err := n.AwaitAnswer(ctx, settleWithin, s.token, string(id), at.Time())
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.a.Lost("node %d does not answer for the newest reading of %s, of %s: %v", i, id, at.Time().Format(time.TimeOnly),
					err)
			}
		}
	}
	for _, id := range layout.All() {
		var stored store.Recent
		var state vehicle.State
		// The cluster may still be electing a leader.
		must.Do(nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) (err error) {
			if stored, err = s.engine.Recent(ctx, id, math.MaxInt); err == nil && !stored.All {
				err = errors.New("the telemetry was not read to its beginning")
			}
			if err != nil {
				return err
			}
			var ok bool
			if state, ok, err = store.State(ctx, s.engine, id); err == nil && !ok {
				err = fmt.Errorf("there is no state of %s", id)
			}
			return err
		}))
		for _, at := range missing(s.load.Acknowledged(id), stored.Samples) {
			s.a.Lost("the reading of %s at %s was acknowledged and is not stored", id, at.Time().Format("15:04:05.000"))
		}
		var want vehicle.State
		for _, x := range stored.Samples {
			want = vehicle.Observe(want, x)
		}
		if state != want {
			s.a.Wrong("the state of %s is not the fold of its %d readings: its time is %s, and they end at %s", id,
				len(stored.Samples), state.Time.Time().Format("15:04:05.000"), want.Time.Time().Format("15:04:05.000"))
		}
	}
}

func missing(journal []signal.UnixMilli, stored []vehicle.Sample) (lost []signal.UnixMilli) {
	for _, at := range journal {
		for len(stored) > 0 && stored[0].Time < at {
			stored = stored[1:]
		}
		if len(stored) == 0 || stored[0].Time != at {
			lost = append(lost, at)
		}
	}
	return lost
}

const askersOfNode = 2

type asking struct {
	asked atomic.Int64

	// A frozen node answers when it resumes, which is not measured.
	frozen [carstates]atomic.Bool

	mu   sync.Mutex
	took []time.Duration
}

func (s *system) ask(ctx context.Context, node, g int) {
	q, rnd := &s.asking, s.a.Rand(2000+node*askersOfNode+g)
	modified := make(map[string]time.Time)
	for ; ctx.Err() == nil; row.Pause(ctx, 4*time.Millisecond) {
		w, n := rnd.IntN(layout.Writers()), rnd.IntN(layout.Cars)
		if (w+n/2)%askersOfNode != g {
			continue
		}
		path, id := nodeprocess.DrivingPath, string(writers.Car(w, n))
		if writers.Faulty(w, n) && rnd.IntN(2) == 0 {
			path = nodeprocess.ThrottlePath
		}
		began, frozen := time.Now(), q.frozen[node].Load()
		ans, err := s.nodes[node].Ask(ctx, path, s.token, id)
		if err != nil && q.frozen[node].Load() {
			// The connection had become too old.
			ans, err = s.nodes[node].Ask(ctx, path, s.token, id)
		}
		if ctx.Err() != nil {
			return
		}
		took, before := time.Since(began), modified[path+id]
		if q.asked.Add(1); !frozen && !q.frozen[node].Load() {
			q.mu.Lock()
			q.took = append(q.took, took)
			q.mu.Unlock()
		}
		switch {
		case err != nil:
			s.a.Wrong("node %d does not answer: %v", node, err)
		case ans.HTTP != http.StatusOK || ans.Status != 1:
			s.a.Wrong("node %d answers %d %s (%s)", node, ans.HTTP, ans.Body, ans.Reason)
		case path == nodeprocess.DrivingPath && ans.Driving != "1" || path == nodeprocess.ThrottlePath && ans.Throttle != "0":
			s.a.Wrong("node %d answers %s: the car drives fast, and has a trouble code if its throttle is asked for",
				node, ans.Body)
		case ans.Modified.Before(before):
			s.a.Wrong("node %d goes back: its answer for %s is of %s after one of %s", node, id,
				ans.Modified.Format(time.TimeOnly), before.Format(time.TimeOnly))
		case ans.Modified.After(time.Now()):
			s.a.Wrong("node %d gives an answer of the future", node)
		}
		modified[path+id] = ans.Modified
	}
}

const (
	revocations = 200
	revokers    = 4
)

func (s *system) revoke(ctx context.Context) {
	took := make([]time.Duration, revocations)
	must.Together(ctx, revokers, func(ctx context.Context, r int) {
		rnd := s.a.Rand(4 + r)
		for i := r; i < revocations; i += revokers {
			took[i] = s.revokeOne(ctx, rnd.IntN(len(s.nodes)))
		}
	})
	s.refused = report.Quantile(took, 0.99)
}

func (s *system) revokeOne(ctx context.Context, at int) time.Duration {
	revoker := must.Get(s.nodes[(at+1)%len(s.nodes)].AdminClient())
	var t wire.IssuedToken
	must.Do(nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) (err error) {
		t, err = s.nodes[at].IssueToken(ctx, "Ada")
		return err
	}))
	everywhere := func(accepted bool) {
		for i, n := range s.nodes {
			must.Do(nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) error {
				ans, err := n.Ask(ctx, nodeprocess.DrivingPath, t.AccessToken, string(writers.Car(0, 0)))
				if err == nil && (ans.HTTP == http.StatusOK) != accepted {
					err = fmt.Errorf("node %d answers %d", i, ans.HTTP)
				}
				return err
			}))
		}
	}
	everywhere(true)
	must.Do(nodeprocess.Until(ctx, settleWithin, func(ctx context.Context) error {
		_, err := revoker.RevokeToken(ctx, t.ID)
		return err
	}))
	began := time.Now()
	if err := must.Caught(func() { everywhere(false) }); err != nil && ctx.Err() == nil {
		s.a.Wrong("a revoked token is accepted for %s: %v", settleWithin, err)
	}
	return time.Since(began)
}

type speed struct {
	perSecond float64
	cpu       time.Duration // of a query
}

const (
	speedWindows = 3
	speedFor     = 2 * time.Second
	speedClients = 8
)

func (s *system) measureSpeed(ctx context.Context, n *nodeprocess.Node) speed {
	best := speed{cpu: math.MaxInt64}
	for range speedWindows {
		v := s.measureWindow(ctx, n)
		best = speed{max(best.perSecond, v.perSecond), min(best.cpu, v.cpu)}
	}
	return best
}

func (s *system) measureWindow(ctx context.Context, n *nodeprocess.Node) speed {
	before := must.Get(n.CPU())
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(speedFor))
	defer cancel()
	var all atomic.Int64
	must.Together(ctx, speedClients, func(ctx context.Context, c int) {
		for i := c; ctx.Err() == nil; i++ {
			id := writers.Car(i%layout.Writers(), i/layout.Writers()%layout.Cars)
			ans, err := n.Ask(ctx, nodeprocess.DrivingPath, s.token, string(id))
			if ctx.Err() != nil {
				break
			}
			if all.Add(1); err != nil || ans.HTTP != http.StatusOK || ans.Driving != "1" {
				s.a.Wrong("a question that was asked at full speed is answered %d %s, %v", ans.HTTP, ans.Body, err)
			}
		}
	})
	lasted, after := time.Since(began), must.Get(n.CPU())
	if all.Load() == 0 {
		must.Fail("the speed cannot be measured: no question was answered")
	}
	return speed{float64(all.Load()) / lasted.Seconds(), (after - before) / time.Duration(all.Load())}
}

func (s *system) alone(ctx context.Context) (before, without, after speed) {
	n := s.nodes[0]
	before = s.measureSpeed(ctx, n)
	must.Do(s.net.nodes("down"))
	// An old copy shows that the node has lost the servers.
	s.promise(ctx, outageWithin, "with all servers cut off", func() error {
		if s.watch.greatestAge() < 2*current {
			return fmt.Errorf("its copy is not old")
		}
		return nil
	})
	without = s.measureSpeed(ctx, n)
	must.Do(s.net.nodes("up"))
	s.watch.begin()
	s.promise(ctx, settleWithin, "after all servers were cut off", s.watch.healthy)
	return before, without, s.measureSpeed(ctx, n)
}
