package derive

import (
	"context"
	"time"

	"carstate/internal/store"
	"carstate/internal/vehicle"
)

// folding is what is known of a partition's vehicles and what of it is not
// committed yet.
type folding struct {
	fold  func(vehicle.State, vehicle.Sample) vehicle.State
	limit int // of touched
	loads int // states that one Load can bring
	// touched are the vehicles heard of since the last commit began, and storing those of a
	// commit that is under way, which does not change them. Both are kept until their commit
	// is done.
	touched, storing map[vehicle.ID]*touched
	cache            *cache                        // states as of the last commit; stale for a vehicle in touched or storing
	seq              uint64                        // what the last sample folded belongs to; 0: a commit has all
	dirty            map[vehicle.ID]*vehicle.State // those of storing that differ from what is stored
	fresh            []*touched                    // those whose state answer has not handed over
	spare            []*touched                    // out of use, at most twice limit
	now              func() time.Time
}

// touched is a vehicle's state as of the last sample folded.
type touched struct {
	id    vehicle.ID
	state vehicle.State
	dirty bool // it differs from what is stored
	fresh bool // it differs from what was handed over as an answer
}

func newFolding(fold func(vehicle.State, vehicle.Sample) vehicle.State, maxStates, maxCached, maxLoad int) *folding {
	return &folding{
		fold:    fold,
		limit:   maxStates,
		loads:   maxLoad,
		touched: make(map[vehicle.ID]*touched),
		storing: make(map[vehicle.ID]*touched),
		cache:   newCache(maxCached),
		dirty:   make(map[vehicle.ID]*vehicle.State),
		now:     time.Now,
	}
}

// fits reports whether the samples can be folded before the next commit.
func (f *folding) fits(samples []vehicle.Sample) bool {
	if len(f.touched)+len(samples) <= f.limit {
		return true
	}
	added := make(map[vehicle.ID]struct{})
	for i := range samples {
		id := samples[i].Vehicle
		if _, ok := f.touched[id]; !ok {
			added[id] = struct{}{}
		}
	}
	return len(f.touched)+len(added) <= f.limit
}

// load sees that the states of the samples' vehicles are in touched, and returns
// how many were looked for in the store.
func (f *folding) load(ctx context.Context, part store.Partition, samples []vehicle.Sample) (read int, err error) {
	var ids []vehicle.ID // of those that are not at hand
	var misses []*touched
	for i := range samples {
		id := samples[i].Vehicle
		if _, ok := f.touched[id]; ok {
			continue
		}
		t := f.newTouched()
		t.id, f.touched[id] = id, t
		if s, ok := f.storing[id]; ok {
			t.state = s.state
		} else if t.state, ok = f.cache.get(id); !ok {
			ids, misses = append(ids, id), append(misses, t)
		}
	}
	for first := 0; first < len(ids); first += f.loads {
		some := misses[first:min(first+f.loads, len(ids))]
		if err := part.Load(ctx, ids[first:first+len(some)], func(i int, s vehicle.State) { some[i].state = s }); err != nil {
			// What was not read must not be taken for a vehicle without a past.
			for _, id := range ids {
				delete(f.touched, id)
			}
			return 0, err
		}
	}
	return len(ids), nil
}

// newTouched returns one that is not in use; its state is whatever it was.
func (f *folding) newTouched() *touched {
	n := len(f.spare)
	if n == 0 {
		return new(touched)
	}
	t := f.spare[n-1]
	f.spare = f.spare[:n-1]
	t.dirty = false
	return t
}

// observe folds samples that were stored at a time, whose vehicles' states were
// loaded. A state from the future was made while a clock of ours and the car's were
// wrong: it would keep out all that the car says until that time comes, so what the
// car says at present begins it anew. If only this clock is behind, the time of
// storing tells. What is late begins nothing.
func (f *folding) observe(seq uint64, stored time.Time, samples []vehicle.Sample) {
	f.seq = seq
	now := f.now()
	if stored.After(now) {
		now = stored
	}
	earliest, latest := vehicle.At(now.Add(-vehicle.MaxAhead)), vehicle.At(now.Add(vehicle.MaxAhead))
	for i := range samples {
		x := &samples[i]
		t := f.touched[x.Vehicle]
		if t.state.Time > latest && earliest <= x.Time && x.Time <= latest {
			t.state = vehicle.State{}
		}
		if next := f.fold(t.state, *x); next != t.state {
			t.state, t.dirty = next, true
			if !t.fresh {
				t.fresh, f.fresh = true, append(f.fresh, t)
			}
		}
	}
}

// answer hands over what was folded since the last time.
func (f *folding) answer(part store.Partition) {
	for _, t := range f.fresh {
		t.fresh = false
		part.Answer(t.id, &t.state)
	}
	f.fresh = f.fresh[:0]
}

// begin starts a commit of all that is folded, and returns what is to be stored. It must
// not be called again before finish.
func (f *folding) begin() (seq uint64, states map[vehicle.ID]*vehicle.State) {
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
func (f *folding) finish() {
	for id, t := range f.storing {
		f.cache.put(id, t.state)
		f.spare = append(f.spare, t)
	}
	clear(f.storing)
}
