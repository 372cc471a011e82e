package fleet

import "iter"

// All yields what is known of every vehicle, in no order and without its vid. It
// holds one shard at a time, while that is copied: a vehicle that changes
// meanwhile is yielded as it was or as it is.
func (t *Table) All() iter.Seq[Answer] {
	return func(yield func(Answer) bool) {
		var copied []record
		for i := range t.shards {
			s := &t.shards[i]
			copied = copied[:0]
			s.mu.RLock()
			for _, r := range s.m {
				copied = append(copied, r)
			}
			s.mu.RUnlock()
			for _, r := range copied {
				if !yield(r.answer()) {
					return
				}
			}
		}
	}
}
