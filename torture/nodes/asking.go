package nodes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carstate/bench/must"
	"carstate/internal/admin/wire"
	"carstate/internal/nodeprocess"
	"carstate/torture/row"
	"carstate/torture/writers"
)

// askersOfNode is the number of goroutines that query one node all the time. Each goroutine queries
// its own vehicles.
const askersOfNode = 2

// asking holds the results of the queries to all nodes, which are sent all the time.
type asking struct {
	asked atomic.Int64

	// frozen marks the nodes whose processes are stopped. A frozen node answers pending queries
	// only after its process is resumed, so the durations of these queries are not measured.
	frozen [carstates]atomic.Bool

	mu      sync.Mutex      // guards took and longest
	took    []time.Duration // durations of a sample of the queries
	longest time.Duration   // longest duration of all queries to nodes that are not frozen
}

// ask queries a node, until ctx ends. It is a finding if a query is not answered correctly, or if an
// answer about a vehicle is older than an earlier answer of the same node.
func (s *system) ask(ctx context.Context, node, g int) {
	q, rnd := &s.asking, s.a.Rand(2000+node*askersOfNode+g)
	modified := make(map[string]time.Time) // times of the latest answers, by operation and vehicle
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
			// The connection had exceeded its age limit when the node was resumed. Query
			// over a new one.
			ans, err = s.nodes[node].Ask(ctx, path, s.token, id)
		}
		if ctx.Err() != nil {
			return
		}
		took, before := time.Since(began), modified[path+id]
		if asked := q.asked.Add(1); !frozen && !q.frozen[node].Load() {
			q.mu.Lock()
			if q.longest = max(q.longest, took); asked%16 == 0 {
				q.took = append(q.took, took)
			}
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

// revoke measures for how long revoked tokens are still accepted by some node.
func (s *system) revoke(ctx context.Context) []time.Duration {
	took, errs := make([]time.Duration, revocations), make([]error, revokers)
	var revoking sync.WaitGroup
	for r := range revokers {
		revoking.Go(func() {
			rnd := s.a.Rand(4 + r)
			errs[r] = must.Caught(func() {
				for i := r; i < revocations; i += revokers {
					took[i] = s.revokeOne(ctx, rnd.IntN(len(s.nodes)))
				}
			})
		})
	}
	revoking.Wait()
	must.Do(errs...)
	return took
}

// revokeOne issues a token on one node, revokes it on the next one, and returns the time
// until all nodes refuse it.
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

// speed is the result of querying a node at full speed.
type speed struct {
	perSecond float64
	cpu       time.Duration // per query
	p99       time.Duration
}

const (
	speedWindows = 3
	speedFor     = 2 * time.Second // per window
	speedClients = 8
)

// measureSpeed queries a node as fast as a few clients can, several times. It returns the best
// value of each quantity, since other load on the machine can only make the values worse.
func (s *system) measureSpeed(ctx context.Context, n *nodeprocess.Node) speed {
	best := s.measureWindow(ctx, n)
	for range speedWindows - 1 {
		v := s.measureWindow(ctx, n)
		best = speed{max(best.perSecond, v.perSecond), min(best.cpu, v.cpu), min(best.p99, v.p99)}
	}
	return best
}

func (s *system) measureWindow(ctx context.Context, n *nodeprocess.Node) speed {
	before := must.Get(n.CPU())
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(speedFor))
	defer cancel()
	var all [speedClients][]time.Duration
	var asking sync.WaitGroup
	for c := range speedClients {
		asking.Go(func() {
			for i := c; ctx.Err() == nil; i++ {
				at := time.Now()
				id := writers.Car(i%layout.Writers(), i/layout.Writers()%layout.Cars)
				ans, err := n.Ask(ctx, nodeprocess.DrivingPath, s.token, string(id))
				if ctx.Err() != nil {
					break
				}
				if all[c] = append(all[c], time.Since(at)); err != nil || ans.HTTP != http.StatusOK || ans.Driving != "1" {
					s.a.Wrong("a question that was asked at full speed is answered %d %s, %v", ans.HTTP, ans.Body, err)
				}
			}
		})
	}
	asking.Wait()
	lasted, took := time.Since(began), slices.Concat(all[:]...)
	after := must.Get(n.CPU())
	if len(took) == 0 {
		must.Fail("the speed cannot be measured: no question was answered")
	}
	return speed{float64(len(took)) / lasted.Seconds(), (after - before) / time.Duration(len(took)),
		row.Percentile(took, 0.99)}
}

// alone measures the speed of a node three times: while the node reaches the NATS servers, while it
// does not reach them, and after it reaches them again.
func (s *system) alone(ctx context.Context) (before, without, after speed) {
	n := s.nodes[0]
	before = s.measureSpeed(ctx, n)
	must.Do(s.net.nodes("down"))
	// Measure only when the node's copy is old, which shows that the node has lost the servers.
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
