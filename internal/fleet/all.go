package fleet

import "iter"

// All yields the answer of every vehicle, in no order and without its vid. It copies one shard at a
// time, which blocks the shard's writers while it copies. If a vehicle changes during the
// iteration, All yields its old or its new answer.
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
