package derive

import (
	"context"
	"time"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/vehicle"
)

// folding holds states of a partition's vehicles in memory: all states that are not committed yet,
// and packed, as many others as fit.
type folding struct {
	fold       func(*vehicle.State, *vehicle.Sample) (changed bool)
	maxTouched int // maximum length of touched
	// touched holds the vehicles with samples since the last commit began. storing holds the
	// vehicles of the commit in progress, each with the state that is being stored. When the commit
	// is complete (stored), they move to packed, a few at a time, so that no sample waits long. A
	// state in packed may be older than one in the two maps.
	touched, storing map[vehicle.ID]*touched
	stored           bool
	packed           *packedStates
	seq              uint64                        // sequence of the last folded sample; 0 if a commit includes it
	dirty            map[vehicle.ID]*vehicle.State // states of storing that differ from the stored state
	unanswered       []*touched                    // vehicles whose state was not published as an answer yet
	sample           vehicle.Sample                // being folded, because the engine may share those that it returns
}

// touched is a vehicle with its state after the last folded sample.
type touched struct {
	id         vehicle.ID
	state      vehicle.State
	folded     uint64 // sequence up to which samples were folded into the state when it was loaded
	dirty      bool   // the state differs from the stored state
	unanswered bool   // the state differs from the published answer
}

func newFolding(fold func(*vehicle.State, *vehicle.Sample) bool, maxStates, cacheBytes int) *folding {
	return &folding{
		fold:       fold,
		maxTouched: maxStates,
		touched:    make(map[vehicle.ID]*touched),
		storing:    make(map[vehicle.ID]*touched),
		packed:     newPackedStates(cacheBytes),
		dirty:      make(map[vehicle.ID]*vehicle.State),
	}
}

// fits reports whether touched would hold at most maxTouched vehicles after folding the samples.
func (f *folding) fits(samples []vehicle.Sample) bool {
	if len(f.touched)+len(samples) <= f.maxTouched {
		return true
	}
	added := make(map[vehicle.ID]struct{})
	for i := range samples {
		id := samples[i].Vehicle
		if _, ok := f.touched[id]; !ok {
			added[id] = struct{}{}
		}
	}
	return len(f.touched)+len(added) <= f.maxTouched
}

// load puts the states of the samples' vehicles, at most [store.MaxLoad], into touched, unless they
// are there already, from memory or else from the store. It returns how many states it looked up in
// the store.
func (f *folding) load(ctx context.Context, part store.Partition, samples []vehicle.Sample) (read int, err error) {
	var ids []vehicle.ID // vehicles whose state is not in memory
	var misses []*touched
	for i := range samples {
		id := samples[i].Vehicle
		if _, ok := f.touched[id]; ok {
			continue
		}
		t := &touched{id: id}
		if s, ok := f.storing[id]; ok {
			t.state, t.folded = s.state, s.folded
		} else if !f.packed.get(id, &t.state) {
			ids, misses = append(ids, id), append(misses, t)
		}
		f.touched[id] = t
	}
	if len(ids) == 0 {
		return 0, nil
	}
	if err := part.Load(ctx, ids, func(i int, s vehicle.State, folded uint64) {
		misses[i].state, misses[i].folded = s, folded
	}); err != nil {
		// Remove the vehicles whose states were not read. Otherwise their zero states would look as
		// if these vehicles had never reported.
		for _, id := range ids {
			delete(f.touched, id)
		}
		return 0, err
	}
	return len(ids), nil
}

// apply folds samples, which were stored together, into the states in touched.
//
// A state whose time is in the future was written while a clock, of a machine or of the car, was
// wrong. Until that time, the rules would reject every sample of the car as too old. So apply
// resets such a state at the first sample whose time differs by at most vehicle.MaxAhead from the
// time at which it was stored. It reads no other clock, so a replay of the log resets the same
// states. It skips a sample that is folded into the stored state already: a state that is ahead of
// the cursor would look to an older sample like a state from the future.
func (f *folding) apply(seq uint64, stored time.Time, samples []vehicle.Sample) {
	f.seq = seq
	earliest, latest := vehicle.At(stored.Add(-vehicle.MaxAhead)), vehicle.At(stored.Add(vehicle.MaxAhead))
	for i := range samples {
		f.sample = samples[i]
		x := &f.sample
		x.Stored = vehicle.At(stored)
		t := f.touched[x.Vehicle]
		if seq <= t.folded {
			continue
		}
		if t.state.Time > latest && earliest <= x.Time && x.Time <= latest {
			t.state = vehicle.State{}
		}
		if f.fold(&t.state, x) {
			t.dirty = true
			if !t.unanswered {
				t.unanswered, f.unanswered = true, append(f.unanswered, t)
			}
		}
	}
}

// answer passes to part.Answer the states that have changed since the last call of answer.
func (f *folding) answer(part store.Partition) {
	for _, t := range f.unanswered {
		t.unanswered = false
		part.Answer(t.id, &t.state)
	}
	f.unanswered = f.unanswered[:0]
}

// state returns the state of a vehicle that is in memory, or nil. The caller must not change it.
func (f *folding) state(id vehicle.ID) *vehicle.State {
	if t, ok := f.touched[id]; ok {
		return &t.state
	}
	if t, ok := f.storing[id]; ok {
		return &t.state
	}
	if s := new(vehicle.State); f.packed.get(id, s) {
		return s
	}
	return nil
}

// begin starts a commit of all folded states. It returns the sequence number to which the commit
// moves the cursor, and the states to store. The caller must call finish before it calls begin
// again.
func (f *folding) begin() (seq uint64, states map[vehicle.ID]*vehicle.State) {
	f.pack(len(f.storing))
	clear(f.dirty)
	for id, t := range f.touched {
		if t.dirty {
			f.dirty[id] = &t.state
		}
	}
	f.touched, f.storing = f.storing, f.touched
	seq, f.seq = f.seq, 0
	return seq, f.dirty
}

// finish ends a commit that was stored.
func (f *folding) finish() { f.stored = true }

// pack packs at most n states of a commit that was stored.
func (f *folding) pack(n int) {
	if !f.stored {
		return
	}
	for id, t := range f.storing {
		if n--; n < 0 {
			return
		}
		if t.dirty || t.folded == 0 { // otherwise it may be ahead of the log, which packed does not say
			f.packed.put(id, &t.state)
		}
		delete(f.storing, id)
	}
	f.stored = false
}
