package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"carstate/bench/must"
	"carstate/internal/admin/wire"
	"carstate/internal/nodeprocess"
	"carstate/torture/row"
	"carstate/torture/writers"
)

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
			rnd := rand.New(rand.NewPCG(s.a.Seed, uint64(4+r)))
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
	for i := range speedWindows {
		v := s.measureWindow(ctx, n)
		if i == 0 {
			best = v
		}
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
	must.Do(s.net.pullAll())
	// Measure only when the node's copy is old, which shows that the node has lost the servers.
	s.promise(ctx, outageWithin, "with all servers cut off", func() error {
		if s.watch.greatestAge() < 2*current {
			return fmt.Errorf("its copy is not old")
		}
		return nil
	})
	without = s.measureSpeed(ctx, n)
	must.Do(s.net.plugAll())
	s.watch.begin()
	s.promise(ctx, settleWithin, "after all servers were cut off", s.watch.healthy)
	return before, without, s.measureSpeed(ctx, n)
}
