package derive

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"example.org/carstate/internal/vehicle"
)

// TestCacheForgetsWhatWasUsedLongestAgo checks that the cache always holds the same vehicles as a
// plain list to which they are added, from which they are taken, and which is cut off at the limit.
func TestCacheForgetsWhatWasUsedLongestAgo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		c := newCache(limit)
		var order []*touched // the last one put first
		for range rapid.IntRange(1, 100).Draw(t, "uses") {
			id := vehicle.ID(rune('a' + rapid.IntRange(0, 9).Draw(t, "id")))
			at := slices.IndexFunc(order, func(x *touched) bool { return x.id == id })
			if at < 0 && rapid.Bool().Draw(t, "put") {
				x := &touched{id: id}
				c.put(x)
				order = slices.Insert(order, 0, x)
				order = order[:min(len(order), limit)]
			} else {
				got := c.take(id)
				if at < 0 && got != nil || at >= 0 && got != order[at] {
					t.Fatalf("%s: took %+v, want number %d of %v", id, got, at, order)
				}
				if at >= 0 {
					order = slices.Delete(order, at, at+1)
				}
			}
			var held []*touched
			for e := c.order.Front(); e != nil; e = e.Next() {
				held = append(held, e.Value.(*touched))
			}
			if !slices.Equal(held, order) || len(c.index) != len(order) {
				t.Fatalf("got %v, %d in the index; want %v", held, len(c.index), order)
			}
		}
	})
}
