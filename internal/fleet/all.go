package fleet

import "iter"

// All yields what is known of every vehicle, in no order and without its vid. It
// holds one shard's writers at a time, while that is copied: a vehicle that
// changes meanwhile is yielded as it was or as it is.
func (t *Table) All() iter.Seq[Answer] {
	return func(yield func(Answer) bool) {
		var copied []value
		for i := range t.shards {
			copied = t.shards[i].appendAll(copied[:0])
			for _, v := range copied {
				if !yield(v.unpack()) {
					return
				}
			}
		}
	}
}
