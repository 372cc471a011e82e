package node

import (
	"context"
	"time"

	"carstate/internal/admin/console"
	"carstate/internal/fleet"
	"carstate/internal/periodic"
	"carstate/internal/vehicle"
)

// answers are what this node answers from: the fleet table, and the console's lists of
// vehicles beside it. It implements [local.Answers].
type answers struct {
	table   *fleet.Table
	monitor *console.Monitor // nil: the node has no console
}

// update is where a stored state becomes an answer; nothing else writes to the fleet
// table. It has two callers: the engine of one machine while it opens (Put), and whatever
// follows states, which brings every later change (PutState). The first knows no more than
// the verdicts, and state is nil.
func (a answers) update(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict, state *vehicle.State) {
	a.table.Put(id, fleet.Answer{Driving: d, Throttle: t})
	switch {
	case a.monitor == nil:
	case state == nil:
		a.monitor.PutVerdicts(id, d, t)
	default:
		a.monitor.Put(id, *state)
	}
}

// Put replaces what is known of a vehicle by its verdicts.
func (a answers) Put(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	a.update(id, d, t, nil)
}

// Get returns the verdicts of a vehicle. Of an unknown vehicle they are zero.
func (a answers) Get(id vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict) {
	known := a.table.Get([]byte(id))
	return known.Driving, known.Throttle
}

// PutState replaces what is known of a vehicle by its newest state. The zero state says
// that the vehicle was forgotten.
func (a answers) PutState(id vehicle.ID, s vehicle.State) {
	if s == (vehicle.State{}) {
		a.Delete(id)
		return
	}
	a.update(id, s.Driving(), s.Throttle(), &s)
}

// Delete forgets a vehicle.
func (a answers) Delete(id vehicle.ID) {
	a.table.Delete(id)
	if a.monitor != nil {
		a.monitor.Put(id, vehicle.State{})
	}
}

// expireAfter is how long the fleet table remembers a vehicle that has gone silent, so
// that it can say "stale" rather than "unknown".
const expireAfter = 30 * 24 * time.Hour

// expiryCutoff returns the time before which a vehicle's last report must lie for it to
// expire. A wall clock that has jumped ahead of the process's own run time does not
// count: a vehicle that is dropped is unknown until it reports again.
func expiryCutoff(began time.Time, ran time.Duration, now time.Time, expireAfter time.Duration) time.Time {
	if steady := began.Add(ran); steady.Before(now) {
		now = steady
	}
	return now.Add(-expireAfter)
}

// expire drops vehicles that have been silent for long, until ctx ends.
func (n *Node) expire(ctx context.Context) {
	began := time.Now()
	for range periodic.Every(ctx, time.Hour) {
		cutoff := expiryCutoff(began.Round(0), time.Since(began), time.Now().Round(0), max(expireAfter, n.config.MaxAge))
		if dropped := n.fleet.Expire(cutoff); dropped > 0 {
			n.config.Log.Info("silent vehicles were dropped from memory", "vehicles", dropped)
		}
	}
}
