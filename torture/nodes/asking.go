package nodes

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

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
	rnd := rand.New(rand.NewPCG(q.a.Seed, uint64(2000+node*askersOfNode+g)))
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
