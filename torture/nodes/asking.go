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
	"carstate/internal/vehicle"
	"carstate/torture/row"
	"carstate/torture/writers"
)

// askersOfNode is the number of goroutines that query one node all the time. Each goroutine queries
// its own vehicles.
const askersOfNode = 2

// asking queries all nodes all the time. It reports a finding if a query is not answered correctly,
// or if an answer about a vehicle is older than an earlier answer of the same node.
type asking struct {
	a       *row.Attempt
	nodes   []*nodeprocess.Node
	token   string
	asked   atomic.Int64
	running sync.WaitGroup

	// frozen marks the nodes whose processes are stopped. A frozen node answers pending queries
	// only after its process is resumed, so the durations of these queries are not measured.
	frozen [carstates]atomic.Bool

	mu      sync.Mutex      // guards took and longest
	took    []time.Duration // durations of a sample of the queries
	longest time.Duration   // longest duration of all queries to nodes that are not frozen
}

// startAsking starts the queries. The nodes must know every car.
func startAsking(ctx context.Context, a *row.Attempt, nodes []*nodeprocess.Node, token string) *asking {
	q := &asking{a: a, nodes: nodes, token: token}
	for i := range nodes {
		for g := range askersOfNode {
			q.running.Go(func() { q.ask(ctx, i, g) })
		}
	}
	return q
}

func (q *asking) ask(ctx context.Context, node, g int) {
	rnd := q.a.Rand(2000 + node*askersOfNode + g)
	modified := make(map[string]time.Time)
	for ctx.Err() == nil {
		w, n := rnd.IntN(layout.Writers()), rnd.IntN(layout.Cars)
		if (w+n/2)%askersOfNode != g {
			continue
		}
		path := nodeprocess.DrivingPath
		if writers.Faulty(w, n) && rnd.IntN(2) == 0 {
			path = nodeprocess.ThrottlePath
		}
		q.one(ctx, node, path, writers.Car(w, n), modified)
		row.Pause(ctx, 4*time.Millisecond)
	}
}

// one sends one query and checks the answer. modified holds the times of the latest answers, by
// operation and vehicle.
func (q *asking) one(ctx context.Context, node int, path string, id vehicle.ID, modified map[string]time.Time) {
	began, frozen := time.Now(), q.frozen[node].Load()
	ans, err := q.nodes[node].Ask(ctx, path, q.token, string(id))
	if err != nil && q.frozen[node].Load() {
		// The connection had exceeded its age limit when the node was resumed. Query over a
		// new one.
		ans, err = q.nodes[node].Ask(ctx, path, q.token, string(id))
	}
	if ctx.Err() != nil {
		return
	}
	took := time.Since(began)
	n := q.asked.Add(1)
	if !frozen && !q.frozen[node].Load() {
		q.mu.Lock()
		if q.longest = max(q.longest, took); n%16 == 0 {
			q.took = append(q.took, took)
		}
		q.mu.Unlock()
	}
	switch {
	case err != nil:
		q.a.Wrong("node %d does not answer: %v", node, err)
	case ans.HTTP != http.StatusOK || ans.Status != 1:
		q.a.Wrong("node %d answers %d %s (%s)", node, ans.HTTP, ans.Body, ans.Reason)
	case path == nodeprocess.DrivingPath && ans.Driving != "1" || path == nodeprocess.ThrottlePath && ans.Throttle != "0":
		q.a.Wrong("node %d answers %s: the car drives fast, and has a trouble code if its throttle is asked for", node,
			ans.Body)
	case ans.Modified.Before(modified[path+string(id)]):
		q.a.Wrong("node %d goes back: its answer for %s is of %s after one of %s", node, id,
			ans.Modified.Format(time.TimeOnly), modified[path+string(id)].Format(time.TimeOnly))
	case ans.Modified.After(time.Now()):
		q.a.Wrong("node %d gives an answer of the future", node)
	}
	modified[path+string(id)] = ans.Modified
}

// delays returns the 99th percentile and the maximum of the durations.
func (q *asking) delays() (p99, longest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return row.Percentile(q.took, 0.99), q.longest
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
func (s *system) measureSpeed(ctx context.Context, n *nodeprocess.Node) (best speed) {
	best = s.measureWindow(ctx, n)
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
	return speed{
		perSecond: float64(len(took)) / lasted.Seconds(),
		cpu:       (after - before) / time.Duration(len(took)),
		p99:       row.Percentile(took, 0.99),
	}
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
