package derive

import (
	"context"
	"sync"
	"sync/atomic"

	"carstate/internal/vehicle"
)

// folding is what is known of a partition's vehicles and what of it is not
// committed yet.
type folding struct {
	limit int // of touched
	// touched are the vehicles heard of since the last commit. They are
	// never forgotten before the next.
	touched map[vehicle.ID]*touched
	cache   *cache                       // states as of the last commit; stale for a vehicle in touched
	seq     uint64                       // what the last sample folded belongs to; 0: all is committed
	dirty   map[vehicle.ID]vehicle.State // what commit hands over, used again
	spare   []*touched                   // out of use, at most limit
}

// touched is a vehicle's state as of the last sample folded.
type touched struct {
	state vehicle.State
	dirty bool // it differs from what is stored
}

func newFolding(maxStates, maxCached int) *folding {
	return &folding{
		limit:   maxStates,
		touched: make(map[vehicle.ID]*touched),
		cache:   newCache(maxCached),
		dirty:   make(map[vehicle.ID]vehicle.State),
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

// readers is how many states are read at a time. One read is a question to the
// engine and its answer; several under way share the wait.
const readers = 32

// load sees that the states of the samples' vehicles are in touched, and returns
// how many were read from the store.
func (f *folding) load(ctx context.Context, part Partition, samples []vehicle.Sample) (read int, err error) {
	type miss struct {
		id vehicle.ID
		t  *touched
	}
	var misses []miss
	for i := range samples {
		id := samples[i].Vehicle
		if _, ok := f.touched[id]; ok {
			continue
		}
		t := f.newTouched()
		f.touched[id] = t
		var ok bool
		if t.state, ok = f.cache.get(id); !ok {
			misses = append(misses, miss{id, t})
		}
	}
	if len(misses) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(readers, len(misses)) {
		running.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= len(misses) {
					return
				}
				s, _, err := part.State(ctx, misses[n].id) // the zero state if there is none
				if err != nil {
					cancel(err)
					return
				}
				misses[n].t.state = s
			}
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		// What was not read must not be taken for a vehicle without a past.
		for _, m := range misses {
			delete(f.touched, m.id)
		}
		return 0, context.Cause(ctx)
	}
	return len(misses), nil
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

// observe folds samples, whose vehicles' states were loaded.
func (f *folding) observe(seq uint64, samples []vehicle.Sample) {
	f.seq = seq
	for i := range samples {
		x := &samples[i]
		t := f.touched[x.Vehicle]
		if next := vehicle.Observe(t.state, *x); next != t.state {
			t.state, t.dirty = next, true
		}
	}
}

// commit stores what is dirty; with nothing folded it renews the cursor. After
// an error everything touched is still there.
func (f *folding) commit(ctx context.Context, part Partition) error {
	clear(f.dirty)
	for id, t := range f.touched {
		if t.dirty {
			f.dirty[id] = t.state
		}
	}
	if err := part.Commit(ctx, f.seq, f.dirty); err != nil {
		return err
	}
	for id, t := range f.touched {
		f.cache.put(id, t.state)
		f.spare = append(f.spare, t)
	}
	clear(f.touched)
	f.seq = 0
	return nil
}
