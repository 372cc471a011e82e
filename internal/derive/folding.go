package derive

import (
	"context"
	"fmt"
	"sync"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

// folding holds the states of all vehicles of a partition in memory.
type folding struct {
	fold func(*vehicle.State, *vehicle.Sample) (changed bool)

	mu     sync.Mutex // guards the fields below, because a checkpoint takes states while folding continues
	states *packedStates
	seq    uint64 // sequence up to which all samples are folded into the states
	// ahead holds, for each loaded state that is ahead of the cursor, up to which sequence samples
	// are folded into it.
	ahead   map[vehicle.ID]uint64
	aheadTo uint64         // greatest sequence in ahead
	sample  vehicle.Sample // being folded, because the engine may share those that it returns
}

func newFolding(fold func(*vehicle.State, *vehicle.Sample) bool) *folding {
	return &folding{fold: fold, states: newPackedStates(bucketBytes), ahead: make(map[vehicle.ID]uint64)}
}

// load reads the stored states of all vehicles of a partition.
func (f *folding) load(ctx context.Context, part store.Partition) error {
	return part.States(ctx, func(id vehicle.ID, packed []byte, folded uint64) {
		f.states.set(id, packed, 0)
		if folded != 0 {
			f.ahead[id], f.aheadTo = folded, max(f.aheadTo, folded)
		}
	})
}

// apply folds samples, which were stored together, into the states, and passes states that change
// to part.Answer.
//
// A state whose time is in the future was written while a clock, of a machine or of the car, was
// wrong. Until that time, the rules would reject every sample of the car as too old. So apply
// resets such a state at the first sample whose time differs by at most vehicle.MaxAhead from the
// time at which it was stored. It reads no other clock, so a replay of the log resets the same
// states. It skips a sample that is folded into the stored state already: a state that is ahead of
// the cursor would look to an older sample like a state from the future.
func (f *folding) apply(seq uint64, part store.Partition, samples []vehicle.Sample) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seq = seq; seq > f.aheadTo {
		f.ahead = nil
	}
	stored := part.Stored()
	earliest, latest := vehicle.At(stored.Add(-vehicle.MaxAhead)), vehicle.At(stored.Add(vehicle.MaxAhead))
	var s vehicle.State // of the vehicle of the present sample
	changed := false
	for i := range samples {
		f.sample = samples[i]
		x := &f.sample
		x.Stored = vehicle.At(stored)
		if i == 0 || x.Vehicle != samples[i-1].Vehicle {
			if s, err = f.states.get(x.Vehicle); err != nil {
				return fmt.Errorf("cannot read a state: %w", err)
			}
		}
		if seq > f.ahead[x.Vehicle] {
			if s.Time > latest && earliest <= x.Time && x.Time <= latest {
				s = vehicle.State{}
			}
			changed = f.fold(&s, x) || changed
		}
		if changed && (i+1 == len(samples) || samples[i+1].Vehicle != x.Vehicle) {
			f.states.put(x.Vehicle, &s)
			part.Answer(x.Vehicle, &s)
			changed = false
		}
	}
	return nil
}

// state returns the state of a vehicle, or nil if it has none, and drops it if drop is set.
func (f *folding) state(id vehicle.ID, drop bool) *vehicle.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.states.get(id)
	if drop {
		f.states.drop(id)
	}
	if err == nil && s.Time != 0 {
		return &s
	}
	return nil
}

// take returns changed states, as [packedStates.take] does, and the sequence up to which samples
// are folded into them. After the last ones, more is false.
func (f *folding) take(from, least int) (seq uint64, states map[vehicle.ID][]byte, next int, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	states, next = f.states.take(from, least)
	return f.seq, states, next, next < len(f.states.buckets)
}

// changed returns the number of states that are not stored.
func (f *folding) changed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.states.changed
}
