// Package nodes takes servers of the NATS cluster away from carstate, and nodes
// of carstate from one another, while cars report and developers ask.
package nodes

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"carstate/torture/row"
)

// Row is row 4 of the torture.
var Row = row.Row{
	Number: 4, Name: "nodes",
	Title:   "A NATS server killed, stopped or cut off",
	Promise: "With three NATS servers, the loss of one loses nothing that was acknowledged, and every query is answered, rightly, all the while. So it is when a node of carstate that folds is stopped and wakes up after another one has taken its work.",
	How: `Three real NATS servers, each in a network namespace of its own, and three nodes of carstate that do everything. Five writers, one of them by MQTT,
report for 30 cars; each sends a reading again, to the next node, until it is acknowledged. Every node is asked all the time. A server is killed (kill -9, and started
again), stopped (SIGSTOP, SIGCONT) or its cable is pulled (link down: what was on its way is lost and nobody is told), in an order that the seed gives, of which the first is killed. Every other time, beginning with the first, it is
the server that leads one of the streams, and it stays away until every stream has a leader again, writes are acknowledged and every car has a new verdict; else it is any server, for up to 6 s.
Before every third, a node of carstate is stopped with SIGSTOP until the others have taken its partitions.

A query is wrong if it is not answered, if the verdict is not what the car does, or if it rests on an older reading than an answer that the same node gave before. None may take more than 2 s. A
stopped node answers once it goes on, if need be to a second try: a connection may have become too old meanwhile. The states are followed as they are stored: none may be older than the one before. In the end every
acknowledged reading must be stored, every stored state must be what the stored readings come to, and every node must answer for the newest.

How long it may take is promised for a server that dies. Of one that is stopped or cut off the others do not know for some seconds, and give it orders meanwhile. Each stream chooses a leader for itself, and the cluster
one, for which NATS takes 4 to 9 s each. "Then until every car has a new verdict" counts from the end of the writers' longest wait: right after the blow something may still be acknowledged, where another server leads the
telemetry and until the nodes notice that the states, say, cannot be stored. Counted from that, the choice of a leader would be in it. Some seconds pass where a partition was read from the server that died, and the leader of the cluster,
who appoints another one, is chosen last.

Once, a fourth node, which only folds, is killed (kill -9), and once another one together with the server that leads the telemetry or the states: the others see that it is gone by leases that
cannot be renewed while there is no leader.

Then, with all servers there and while the cars go on to report, 200 tokens are revoked on one node and tried on all. At last, when nobody reports any more, all servers are cut off at once, and a node is asked as fast as
eight clients can, before, during and after, each time in three windows of 2 s of which the best counts; "during" and "after" are judged by "before". All runs on one machine, so what the clients
need is taken from the node: compare the ratios, not the figures.`,
	Found: []string{
		"When the leader of a stream was stopped and the cluster did not know yet, a node could give a stopped server the order to feed it, and waited 5 s for the answer. It orders again after 2 s.",
		"Where a node that folds died together with a server, the others counted its silence from when its last lease came back on their feeds. They go by the order of the feed now.",
		"A server that refused a login twice, such as one whose password was changed, ended the connection of a node for good, and the node went on without one.",
	},
	Counts: "disturbances", CI: 5, Long: 100,
	Controls: []row.Control{
		{Defect: "unfenced", Says: "stores the cursor of a partition whoever has written it since",
			By: []string{"wrong: the state of * goes back by *", "wrong: node * goes back: its answer for *", "wrong: the state of * is not what its * readings come to: *"}, Count: 1},
		{Defect: "one-replica", Says: "makes streams with one copy although three were asked for",
			By: []string{"wrong: while server * is *: nothing of writer * is acknowledged for *", "wrong: while server * is *: the leader of * does not answer: *", "wrong: while server * is *: the state of * is not of after *"}, Count: 3},
	},
	Needs: needs,
	Run:   run,
}

func run(ctx context.Context, a *row.Attempt) (err error) {
	s, err := start(ctx, a)
	if err != nil {
		return err
	}
	defer func() {
		if failed := s.close(); err == nil && ctx.Err() == nil {
			err = failed
		}
	}()
	m, err := s.disturb(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	taken, err := s.folderDies(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	back, all, err := s.together(ctx, rand.New(rand.NewPCG(a.Seed, 3)))
	if err != nil || ctx.Err() != nil {
		return err
	}
	revoked, err := s.revoke(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	s.stopLoad()
	s.load.running.Wait()
	if err := s.judge(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	asked, p99, wait := s.asking.asked.Load(), s.asking.percentile(0.99), s.asking.longestWait()
	before, without, after, err := s.alone(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	within := func(name string, d, limit time.Duration) { aimed(a, name, longest{d, true}, limit) }
	m.judge(a)
	within("a node that folds is killed: until every car has a new verdict", taken, 10*time.Second)
	within("a server and a node that folds are killed together: until samples are acknowledged and verdicts stored again", back, 10*time.Second)
	within("then until every car has a new verdict", all, 10*time.Second)
	within("greatest age of a node's copy", m.age, time.Minute)
	a.Figure("tries of a writer that were refused (503)", float64(s.load.refused), "")
	a.Figure("tries of a writer that got no answer", float64(s.load.failed), "")
	a.Figure("states stored and followed", float64(s.follow.states), "")
	a.Figure("queries", float64(asked), "")
	a.Figure("queries, p99", float64(p99.Microseconds())/1000, "ms")
	within("the longest query, but to a node that is stopped or just woke up", wait, 2*time.Second)
	p := percentile(revoked, 0.99)
	a.Aimed(fmt.Sprintf("%d revocations: refused on all three nodes, p99", len(revoked)), float64(p.Milliseconds()), "ms", "≤ 1 s", p <= time.Second)
	ratio := func(name string, x, y float64, aim string, met func(float64) bool) {
		r := math.Round(100*x/y) / 100
		a.Aimed(name, r, "×", aim, met(r))
	}
	fast := func(r float64) bool { return r >= 0.7 }
	a.Figure("queries a second of eight clients, before the servers are cut off", math.Round(before.perSecond), "/s")
	ratio("queries a second without any server, to before", without.perSecond, before.perSecond, "≥ 0.7 ×", fast)
	ratio("queries a second once they are back, to before", after.perSecond, before.perSecond, "≥ 0.7 ×", fast)
	a.Figure("their p99 without any server, to before", math.Round(100*float64(without.p99)/float64(before.p99))/100, "×")
	ratio("CPU of the node a query without any server, to before", float64(without.cpu), float64(before.cpu), "≤ 1.2 ×", func(r float64) bool { return r <= 1.2 })
	return nil
}
