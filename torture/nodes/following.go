package nodes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"carstate/internal/store/cluster"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// following reads every state when it is stored. It reports a finding if a vehicle's state is older
// than the one that was stored before it.
type following struct {
	a *row.Attempt

	mu     sync.Mutex // guards the fields below
	at     map[vehicle.ID]vehicle.UnixMilli
	states int
	came   map[vehicle.ID][]arrival // recorded from the call of begin to that of renewed; else nil
}

// arrival records when a state was received, and the state's time.
type arrival struct {
	at time.Time
	of vehicle.UnixMilli
}

func newFollowing(a *row.Attempt) *following {
	return &following{a: a, at: make(map[vehicle.ID]vehicle.UnixMilli)}
}

// run follows the feed until ctx ends.
func (f *following) run(ctx context.Context, e *cluster.Engine) {
	if err := e.FollowStates(ctx, f.put, func() {}); err != nil && ctx.Err() == nil {
		f.a.Wrong("the states cannot be followed: %v", err)
	}
}

func (f *following) put(id vehicle.ID, s *vehicle.State) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states++
	if was := f.at[id]; s.Time < was {
		f.a.Wrong("the state of %s goes back by %s, to %s", id, was.Sub(s.Time), s.Time.Time().Format("15:04:05.000"))
	}
	if f.came != nil && s.Time > f.at[id] {
		f.came[id] = append(f.came[id], arrival{now, s.Time})
	}
	f.at[id] = s.Time
}

// begin starts to record arrivals, for a later call of renewed.
func (f *following) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = make(map[vehicle.ID][]arrival)
}

// renewed returns the time at which a state newer than the parameter when had arrived for every
// car. It considers only arrivals since begin. If a car has none, it returns the zero time. It also
// ends the recording that begin started.
func (f *following) renewed(when vehicle.UnixMilli) (last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.came = nil }()
	for _, id := range layout.All() {
		i := slices.IndexFunc(f.came[id], func(a arrival) bool { return a.of > when })
		if i < 0 {
			return time.Time{}
		}
		if at := f.came[id][i].at; at.After(last) {
			last = at
		}
	}
	return last
}

// newerThan returns an error until the state of every car is newer than the parameter when.
func (f *following) newerThan(when vehicle.UnixMilli) error {
	wanted := make(map[vehicle.ID]vehicle.UnixMilli)
	for _, id := range layout.All() {
		wanted[id] = when + 1
	}
	return f.reached(wanted)
}

// someNewerThan returns an error until the state of at least one car is newer than the parameter
// when.
func (f *following) someNewerThan(when vehicle.UnixMilli) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.at {
		if at > when {
			return nil
		}
	}
	return fmt.Errorf("no state is of after %s", when.Time().Format("15:04:05.000"))
}

// reached returns an error until the state of every car in wanted is of the time given there, or
// newer.
func (f *following) reached(wanted map[vehicle.ID]vehicle.UnixMilli) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, at := range wanted {
		if f.at[id] < at {
			return fmt.Errorf("the state of %s is not of after %s, but %s older", id, at.Time().Format("15:04:05.000"),
				at.Sub(f.at[id]))
		}
	}
	return nil
}
