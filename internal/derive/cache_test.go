package derive

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"carstate/internal/vehicle"
)

// TestCacheForgetsWhatWasUsedLongestAgo checks that the cache always holds the same states as a
// plain list that is sorted by last use and cut off at the limit.
func TestCacheForgetsWhatWasUsedLongestAgo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		c := newCache(limit)
		var order []vehicle.ID // most recently used first
		state := make(map[vehicle.ID]vehicle.State)
		use := func(id vehicle.ID) {
			order = slices.DeleteFunc(order, func(x vehicle.ID) bool { return x == id })
			order = slices.Insert(order, 0, id)
			order = order[:min(len(order), limit)]
		}
		for n := range rapid.IntRange(1, 100).Draw(t, "uses") {
			id := vehicle.ID(rune('a' + rapid.IntRange(0, 9).Draw(t, "id")))
			known := slices.Contains(order, id)
			if rapid.Bool().Draw(t, "put") {
				state[id] = vehicle.State{Time: vehicle.UnixMilli(n + 1)}
				c.put(id, state[id])
				use(id)
			} else {
				got, ok := c.get(id)
				if ok != known || ok && got != state[id] {
					t.Fatalf("%s: got time %v, found %t; want %v, %t", id, got.Time, ok, state[id].Time, known)
				}
				if ok {
					use(id)
				}
			}
			var ring []vehicle.ID
			for i, left := c.newest, c.used; left > 0; left-- {
				ring = append(ring, c.at(i).id)
				i = c.at(i).older
			}
			if !slices.Equal(ring, order) || len(c.index) != len(order) {
				t.Fatalf("got ring %v, %d in the index; want %v", ring, len(c.index), order)
			}
		}
	})
}
