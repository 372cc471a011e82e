package nodes

import (
	"context"
	"fmt"
	"sync"

	"carstate/internal/stream"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// following reads every state as it is stored. None may be older than the one
// before.
type following struct {
	a *row.Attempt

	mu     sync.Mutex // guards what follows
	at     map[vehicle.ID]vehicle.UnixMilli
	states int
}

func newFollowing(a *row.Attempt) *following {
	return &following{a: a, at: make(map[vehicle.ID]vehicle.UnixMilli)}
}

// run follows until the context ends.
func (f *following) run(ctx context.Context, e *stream.Engine) {
	if err := e.FollowStates(ctx, f.put, func() {}); err != nil && ctx.Err() == nil {
		f.a.Wrong("the states cannot be followed: %v", err)
	}
}

func (f *following) put(id vehicle.ID, s vehicle.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states++
	if was := f.at[id]; s.Time < was {
		f.a.Wrong("the state of %s goes back by %s, to %s", id, was.Sub(s.Time), s.Time.Time().Format("15:04:05.000"))
	}
	f.at[id] = s.Time
}

// newerThan is an error until the state of every car is of after a moment.
func (f *following) newerThan(when vehicle.UnixMilli) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range cars() {
		if f.at[id] <= when {
			return fmt.Errorf("the state of %s is not of after %s", id, when.Time().Format("15:04:05.000"))
		}
	}
	return nil
}

// someNewerThan is an error until the state of any car is of after a moment.
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

// reached is an error until the state of every car is as new as a reading of it.
func (f *following) reached(readings map[vehicle.ID]vehicle.UnixMilli) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, at := range readings {
		if f.at[id] < at {
			return fmt.Errorf("the state of %s is %s older than what was acknowledged last", id, at.Sub(f.at[id]))
		}
	}
	return nil
}
