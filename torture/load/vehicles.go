package load

import (
	"context"
	"errors"
	"time"

	"carstate/internal/nodeprocess"
)

// A row whose senders are its own has what they send held against the node as well:
// it tells the journal of it.

// NoteOffered takes in a sample that somebody is about to send. Its time is in whole
// seconds (Unix), because Last-Modified knows no others.
func (l *Load) NoteOffered(vid string, at int64) { l.journal.offer([]sample{{vid, at}}) }

// NoteAcknowledged takes in that such a sample was acknowledged.
func (l *Load) NoteAcknowledged(vid string, at int64) { l.journal.acknowledge([]sample{{vid, at}}) }

// Vehicles are all of which a sample was acknowledged.
func (l *Load) Vehicles() []string { return l.journal.all() }

// holdLimit is longer than it takes to hold a node to all vehicles that a row has.
const holdLimit = 5 * time.Minute

// HoldVehicles waits until the node must know all that has been acknowledged by now,
// and asks about vehicles: each must have a state that is at least as new as its
// newest sample of those. What is not so is a finding. Others may go on sending
// meanwhile. The error says that not all were asked about.
func (l *Load) HoldVehicles(ctx context.Context, n *nodeprocess.Node, vids []string) error {
	if len(vids) == 0 {
		l.wrong("no sample of any vehicle was acknowledged: the row says nothing about them")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	was := make(map[string]car, len(vids))
	for _, vid := range vids {
		was[vid] = l.journal.before(vid)
	}
	return l.Hold(ctx, n, func(ctx context.Context, n *nodeprocess.Node) error {
		l.checkCars(ctx, n, vids, func(vid string) car { return was[vid] })
		if n.HasEnded() {
			return errors.New("the node has ended")
		}
		return ctx.Err()
	})
}
