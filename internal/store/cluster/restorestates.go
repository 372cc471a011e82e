package cluster

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
func (r *restore) states(ctx context.Context, batch []record) error {
	for len(batch) > 0 {
		wanted := make([]*write, len(batch))
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
		var writes []write
		var of []record
		for i, w := range wanted {
			if w != nil {
				writes, of = append(writes, *w), append(of, batch[i])
			}
		}
		conflicts, err := r.k.e.storeMany(ctx, States, writes)
		if err != nil {
			return err
		}
		batch = nil
		for _, i := range conflicts {
			batch = append(batch, of[i]) // the vehicle has reported, or was forgotten
			of[i] = record{}
		}
		for _, rec := range of {
			if rec.subject != "" {
				r.count(rec.subject, taken)
			}
		}
	}
	return nil
}

// compare returns what is to be stored of a state; nil if the service knows
// better.
func (r *restore) compare(ctx context.Context, rec record) (*write, error) {
	e := r.k.e
	id, _ := codec.VehicleOfState(rec.subject)
	s, err := codec.DecodeState(rec.body)
	if err != nil {
		return nil, err
	}
	if r.forgotten(id, s) {
		r.count(rec.subject, leftOut)
		return nil, nil
	}
	subject := codec.StateSubject(codec.PartitionOf(id, e.partitions), id)
	body, rev, err := e.lastRecord(ctx, States, subject)
	if err != nil {
		return nil, err
	}
	if rev != 0 && codec.IsMarker(body) {
		// The vehicle was forgotten, maybe by a node whose tombstone is not
		// on our feed yet.
		if err := e.awaitTombstones(ctx); err != nil {
			return nil, err
		}
		if r.forgotten(id, s) {
			r.count(rec.subject, leftOut)
			return nil, nil
		}
	} else if rev != 0 {
		stored, err := codec.DecodeState(body)
		if err != nil {
			return nil, err
		}
		if stored.Time >= s.Time {
			r.count(rec.subject, kept)
			return nil, nil
		}
	}
	// The body goes over as it is: what a rule remembers is not lost.
	return &write{subject, codec.Seal(subject, append([]byte{0}, rec.body...)), rev, true}, nil
}

// forgotten reports whether a state of the backup must not come back: its vehicle
// is forgotten, or was allowed again without its past.
func (r *restore) forgotten(id vehicle.ID, s vehicle.State) bool {
	t, ok := r.k.e.forgotten.Find(id)
	return ok && (t.InForce() || !r.info.Began.After(t.Lifted) || !s.Time.Time().After(t.Forgotten))
}
