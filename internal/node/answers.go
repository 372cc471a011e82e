package node

import (
	"context"
	"time"

	"carstate/internal/admin/console"
	"carstate/internal/fleet"
	"carstate/internal/periodic"
	"carstate/internal/vehicle"
)

// answers holds the tables that are filled from the states: the fleet table, which answers queries,
// and on a node with a console its lists of vehicles. It implements [local.Answers].
type answers struct {
	table   *fleet.Table
	monitor *console.Monitor // nil if the node has no console
}

// update puts the verdicts of a vehicle into the tables. The engine of one machine calls Put while
// it opens. Put knows only the verdicts, so the parameter state is nil. PutState is called for
// every later change in the feed of STATES.
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

// Put replaces what is known of a vehicle with its verdicts.
func (a answers) Put(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	a.update(id, d, t, nil)
}

// Get returns the verdicts of a vehicle, which are zero if the vehicle is unknown.
func (a answers) Get(id vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict) {
	known := a.table.Get([]byte(id))
	return known.Driving, known.Throttle
}

// PutState replaces what is known of a vehicle with its newest state. The zero state means that the
// vehicle was forgotten.
func (a answers) PutState(id vehicle.ID, s vehicle.State) {
	if s == (vehicle.State{}) {
		a.Delete(id)
		return
	}
	a.update(id, s.Driving(), s.Throttle(), &s)
}

// Delete removes what is known of a vehicle.
func (a answers) Delete(id vehicle.ID) {
	a.table.Delete(id)
	if a.monitor != nil {
		a.monitor.Put(id, vehicle.State{})
	}
}

// expireAfter is the time for which the fleet table keeps a vehicle after its last report. During
// this time, queries for the vehicle are answered "stale" and not "unknown".
const expireAfter = 30 * 24 * time.Hour

// expiryCutoff returns the cutoff for expiry: a vehicle whose last report is older has expired. It
// lies expireAfter before the present time by the wall clock. But if the wall clock is ahead of
// began plus ran, which is the process's run time and never jumps, it lies expireAfter before that
// sum. A clock that jumped ahead must not drop vehicles, because a dropped vehicle is unknown until
// it reports again.
func expiryCutoff(began time.Time, ran time.Duration, now time.Time, expireAfter time.Duration) time.Time {
	if steady := began.Add(ran); steady.Before(now) {
		now = steady
	}
	return now.Add(-expireAfter)
}

// expire drops vehicles that have been silent for expireAfter, or MaxAge if longer, until ctx ends.
func (n *Node) expire(ctx context.Context) {
	began := time.Now()
	for range periodic.Every(ctx, time.Hour) {
		cutoff := expiryCutoff(began.Round(0), time.Since(began), time.Now().Round(0), max(expireAfter, n.config.MaxAge))
		if dropped := n.fleet.Expire(cutoff); dropped > 0 {
			n.config.Log.Info("dropped silent vehicles from memory", "vehicles", dropped)
		}
	}
}
