package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
)

// Refused returns nil if the node did not start because it was killed. If the node refused to
// start, Refused reports a finding and returns err.
func (l *Load) Refused(err error) error {
	if e, ok := errors.AsType[*nodeprocess.EndedError](err); ok && e.Code >= 0 {
		l.wrong("it does not start after kill -9: %s", e.Last)
		return err
	}
	return nil
}

// ReadyLimit is the time limit of a start. It is long, because a busy machine is slow.
const ReadyLimit = 2 * time.Minute

// Start starts a node and waits until it is ready. A node that refuses to start or does not
// become ready is a finding.
func (l *Load) Start(ctx context.Context, o nodeprocess.Options) (*nodeprocess.Node, error) {
	n, err := nodeprocess.Start(ctx, o)
	if err != nil {
		return nil, errors.Join(l.Refused(err), err)
	}
	if err := n.AwaitReady(ctx, ReadyLimit); err != nil {
		if ctx.Err() == nil {
			l.wrong("it is not ready after kill -9: %v", err)
		}
		n.Kill()
		return nil, err
	}
	return n, nil
}

// Hold waits until the node shows every sample that was acknowledged before the call, and then
// calls look. It is a finding if the node does not show them in time, or ends by itself. A look that
// fails is no finding.
func (l *Load) Hold(ctx context.Context, n *nodeprocess.Node,
	look func(context.Context, *nodeprocess.Node)) {
	err := l.Settle(ctx, n)
	settled := err == nil
	if settled {
		err = must.Caught(func() { look(ctx, n) })
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case n.HasEnded():
		l.wrong("it ended by itself: %s", n.LastLine())
	case settled: // look failed, which says nothing about the node
	case errors.Is(err, errNotSeen):
		l.a.Lost("%v", err)
	default:
		l.wrong("%v", err)
	}
	must.Do(err)
}

// End reports the size of the journal, checks that each kind of operation has happened, and
// stops the last node.
func (l *Load) End(n *nodeprocess.Node) {
	tokens, revoked := l.journal.count(false)
	sources, removed := l.journal.count(true)
	l.a.Figure("vehicles in the journal", float64(len(l.journal.all())), "")
	l.a.Figure(fmt.Sprintf("tokens issued, %d of them revoked", revoked), float64(tokens), "")
	l.a.Figure(fmt.Sprintf("sources added, %d of them removed", removed), float64(sources), "")
	l.a.Figure("vehicles forgotten", float64(len(l.journal.forgotten)), "")
	l.MustHaveHappened()
	if err := n.Stop(); err != nil {
		l.wrong("it does not stop in order: %v", err)
	}
}

// A row with its own senders can use the journal, too. It reports to the Load what it sends and
// what the node acknowledges.

// NoteOffered records a sample that is about to be sent. The parameter at is its time in whole
// seconds (Unix), because Last-Modified has no finer resolution.
func (l *Load) NoteOffered(vid string, at int64) { l.journal.offer([]sample{{vid, at}}) }

// NoteAcknowledged records that a sample recorded with NoteOffered was acknowledged.
func (l *Load) NoteAcknowledged(vid string, at int64) { l.journal.acknowledge([]sample{{vid, at}}) }

// Vehicles returns all vehicles with an acknowledged sample.
func (l *Load) Vehicles() []string { return l.journal.all() }

// holdLimit is longer than a check of all vehicles of a row takes.
const holdLimit = 5 * time.Minute

// HoldVehicles waits until the node shows every sample that was acknowledged before the call. Then
// it queries the vehicles. The state of each vehicle must be at least as new as its newest
// acknowledged sample; otherwise it is a finding. Other senders may continue.
func (l *Load) HoldVehicles(ctx context.Context, n *nodeprocess.Node, vids []string) {
	if len(vids) == 0 {
		l.wrong("no sample of any vehicle was acknowledged, so the row proves nothing about them")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	was := make(map[string]car, len(vids))
	for _, vid := range vids {
		was[vid] = l.journal.before(vid)
	}
	l.Hold(ctx, n, func(ctx context.Context, n *nodeprocess.Node) {
		l.checkCars(ctx, n, vids, func(vid string) car { return was[vid] })
		if n.HasEnded() {
			must.Fail("the node has ended")
		}
		must.Do(ctx.Err())
	})
}

// watchedCars is the number of vehicles that are queried all the time.
const watchedCars = 200

// watch is the watcher with the given number. It queries its part of the vehicles that report
// repeatedly, until ctx ends. Even after a restart of the node, no vehicle's event time may
// decrease, and no vehicle that was known may be unknown.
func (l *Load) watch(ctx context.Context, n *nodeprocess.Node, number int) {
	for ctx.Err() == nil {
		cars := l.journal.watched(watchedCars)
		if len(cars) == 0 && !rest(ctx) {
			return
		}
		for i, vid := range cars {
			if i%watchers != number {
				continue
			}
			if answered := l.ask(ctx, n, vid, l.journal.before(vid), false); !answered && !rest(ctx) {
				return
			}
		}
	}
}

// ask queries a vehicle and checks the answer against the parameter was, which is what the journal
// knew before the query. It reports whether the node answered.
func (l *Load) ask(ctx context.Context, n *nodeprocess.Node, vid string, was car, settled bool) bool {
	a, err := n.Ask(ctx, nodeprocess.DrivingPath, l.token, vid)
	if ctx.Err() != nil {
		return false
	}
	l.Asked.Add(1)
	if err != nil || a.HTTP == http.StatusServiceUnavailable {
		l.Unanswered.Add(1)
		return false
	}
	l.report(l.journal.check(vid, was, a, settled))
	return true
}
