package store

import (
	"context"
	"sync"

	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// readersOfStates is how many stored states are looked up at a time.
const readersOfStates = 16

// states restores those states that are newer than the stored ones, into the
// partitions that the vehicles have here. Those that change meanwhile are looked
// at again.
func (r *restore) states(ctx context.Context, batch []Record) error {
	for len(batch) > 0 {
		wanted := make([]*Write, len(batch))
		var failed error
		var mu sync.Mutex // guards failed
		var looking sync.WaitGroup
		for n := range min(readersOfStates, len(batch)) {
			looking.Go(func() {
				for i := n; i < len(batch); i += readersOfStates {
					w, err := r.compare(ctx, batch[i])
					if err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
						return
					}
					wanted[i] = w
				}
			})
		}
		looking.Wait()
		if failed != nil {
			return failed
		}
		var writes []Write
		var of []Record
		for i, w := range wanted {
			if w != nil {
				writes, of = append(writes, *w), append(of, batch[i])
			}
		}
		conflicts, err := storeMany(ctx, r.k.engine, r.k.config.Patience.Store, codec.States, writes)
		if err != nil {
			return err
		}
		batch = nil
		for _, i := range conflicts {
			batch = append(batch, of[i]) // the vehicle has reported, or was forgotten
			of[i] = Record{}
		}
		for _, rec := range of {
			if rec.Subject != "" {
				r.count(rec.Subject, taken)
			}
		}
	}
	return nil
}

// compare returns what is to be stored of a state; nil if the service knows
// better.
func (r *restore) compare(ctx context.Context, rec Record) (*Write, error) {
	e := r.k.engine
	id, _ := codec.VehicleOfState(rec.Subject)
	s, err := codec.DecodeState(rec.Body)
	if err != nil {
		return nil, err
	}
	if r.forgotten(id, s) {
		r.count(rec.Subject, leftOut)
		return nil, nil
	}
	subject := codec.StateSubject(codec.PartitionOf(id, e.Partitions()), id)
	is, err := e.Last(ctx, codec.States, subject)
	if err != nil {
		return nil, err
	}
	if is.Seq != 0 && codec.IsMarker(is.Body) {
		// The vehicle was forgotten, maybe by a node whose tombstone is not
		// on our feed yet.
		if err := e.AwaitTombstones(ctx); err != nil {
			return nil, err
		}
		if r.forgotten(id, s) {
			r.count(rec.Subject, leftOut)
			return nil, nil
		}
	} else if is.Seq != 0 {
		stored, err := codec.DecodeState(is.Body)
		if err != nil {
			return nil, err
		}
		if stored.Time >= s.Time {
			r.count(rec.Subject, kept)
			return nil, nil
		}
	}
	// The body goes over as it is: what a rule remembers is not lost.
	return &Write{subject, codec.Seal(subject, append([]byte{0}, rec.Body...)), is.Seq, true}, nil
}

// forgotten reports whether a state of the backup must not come back: its vehicle
// is forgotten, or was allowed again without its past.
func (r *restore) forgotten(id vehicle.ID, s vehicle.State) bool {
	t, ok := r.k.forgotten.Find(id)
	return ok && (t.InForce() || !r.info.Began.After(t.Lifted) || !s.Time.Time().After(t.Forgotten))
}
