package node

import (
	"context"
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

// A zero answer means that the vehicle was forgotten.
func (n *Node) putAnswer(id vehicle.ID, is *store.Answer) {
	if *is == (store.Answer{}) {
		n.fleet.Delete(id)
		if n.changes != nil {
			n.monitor.Put(id, is)
			n.changes.Forget(id)
		}
		return
	}
	now := fleet.Answer{Driving: is.Driving, Throttle: is.Throttle}
	was := n.fleet.Put(id, now)
	if n.changes != nil {
		n.monitor.Put(id, is)
		n.changes.Put(id, was, now)
	}
}

func (n *Node) verdicts(id vehicle.ID) (vehicle.DrivingVerdict, vehicle.ThrottleVerdict) {
	known := n.fleet.Get([]byte(id))
	return known.Driving, known.Throttle
}

const (
	day = 24 * time.Hour
	// expireAfter is how long a vehicle is kept after its last report: queries about it are
	// answered "stale", not "unknown".
	expireAfter = 30 * day
)

func (n *Node) silentAfter() time.Duration { return max(expireAfter, n.config.MaxAge) }

// ran is monotonic, so that vehicles do not expire because the wall clock jumps ahead.
func expiryCutoff(began time.Time, ran time.Duration, now time.Time, expireAfter time.Duration) time.Time {
	if steady := began.Add(ran); steady.Before(now) {
		now = steady
	}
	return now.Add(-expireAfter)
}

func (n *Node) expire(ctx context.Context) {
	began := time.Now()
	for range periodic.Every(ctx, time.Hour) {
		cutoff := expiryCutoff(began.Round(0), time.Since(began), time.Now().Round(0), n.silentAfter())
		if dropped := n.fleet.Expire(cutoff); dropped > 0 {
			n.config.Log.Info("dropped silent vehicles from memory", "vehicles", dropped)
		}
	}
}
