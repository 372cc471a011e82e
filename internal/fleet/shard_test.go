package fleet

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// checkShard also checks the order that searches need.
func checkShard(t interface{ Fatalf(string, ...any) }, s *shard, want map[key]value) {
	a := *s.slots.Load()
	got := make(map[key]value)
	for i := range a {
		if a[i].free() {
			continue
		}
		got[key{a[i][0], a[i][1]}] = value{a[i][2], a[i][3]}
		before := &a[(i+len(a)-1)%len(a)]
		d := away(i, a[i][1], len(a))
		if d > 0 && before.free() {
			t.Fatalf("slot %d of %d, %d away from home: got a free slot before it, want none", i, len(a), d)
		}
		if d > 0 && away((i+len(a)-1)%len(a), before[1], len(a)) < d-1 {
			t.Fatalf("slot %d of %d: got it behind a vehicle that belongs further on, want it before", i, len(a))
		}
	}
	if !maps.Equal(got, want) || int(s.vehicles.Load()) != len(want) {
		t.Fatalf("the shard: got a count of %d and\n%v\nwant\n%v", s.vehicles.Load(), got, want)
	}
	for k, v := range want {
		if got, found := s.find(k); got != v || !found {
			t.Fatalf("key %v: got %v, %t, want %v", k, got, found, v)
		}
	}
}

// Keys may have one home slot, or one at the end of the array, where it wraps around.
func TestShardIsAMap(t *testing.T) {
	keys := rapid.Custom(func(t *rapid.T) key {
		anywhere := rapid.Uint64().Draw(t, "anywhere")
		near := rapid.SampledFrom([]uint64{0, 1 << 63, math.MaxUint64 - 40, anywhere}).Draw(t, "near")
		return key{rapid.Uint64Range(0, 2).Draw(t, "hi") + 1, near + rapid.Uint64Range(0, 40).Draw(t, "lo")}
	})
	rapid.Check(t, func(t *rapid.T) {
		var s shard
		s.init(rapid.Float64Range(0, 1).Draw(t, "phase"))
		model := make(map[key]value)
		t.Repeat(map[string]func(*rapid.T){
			"put many": func(t *rapid.T) {
				for _, k := range rapid.SliceOfN(keys, 1, 60).Draw(t, "keys") {
					v := value{rapid.Uint64().Draw(t, "value"), uint64(len(model))}
					s.put(k, v)
					model[k] = v
				}
			},
			"remove": func(t *rapid.T) {
				k := keys.Draw(t, "key")
				s.remove(k)
				delete(model, k)
			},
			"remove many": func(t *rapid.T) {
				known := slices.SortedFunc(maps.Keys(model), func(a, b key) int {
					if a.lo != b.lo {
						return int(a.lo%math.MaxInt32) - int(b.lo%math.MaxInt32)
					}
					return int(a.hi) - int(b.hi)
				})
				for _, k := range known[:rapid.IntRange(0, len(known)).Draw(t, "number")] {
					s.remove(k)
					delete(model, k)
				}
			},
			"remove by value": func(t *rapid.T) {
				bit := uint64(1) << rapid.IntRange(0, 63).Draw(t, "bit")
				old := func(v value) bool { return v[0]&bit != 0 }
				want := len(model)
				maps.DeleteFunc(model, func(_ key, v value) bool { return old(v) })
				if n := s.removeIf(old); n != want-len(model) {
					t.Fatalf("the removed vehicles: got %d, want %d", n, want-len(model))
				}
			},
			"": func(t *rapid.T) {
				checkShard(t, &s, model)
				k := keys.Draw(t, "asked")
				if got, _ := s.find(k); got != model[k] {
					t.Fatalf("key %v: got %v, want %v", k, got, model[k])
				}
			},
		})
	})
}

func slotsOf(t *Table) (n int) {
	for i := range t.shards {
		n += len(*t.shards[i].slots.Load())
	}
	return n
}

func answerAt(t time.Time) Answer {
	return Answer{Driving: vehicle.DrivingVerdict{State: driving.Slow, Time: signal.At(t)},
		Throttle: vehicle.ThrottleVerdict{Time: signal.At(t)}}
}

// At most 9/5 of the vehicles that are left, plus a constant, and none without vehicles.
func TestMemoryComesBack(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const n = 30_000
	for _, c := range []struct {
		how    string
		forget func(*Table, int)
	}{
		{"deleted", func(t *Table, kept int) {
			for i := kept; i < n; i++ {
				t.Delete(vehicle.ID(fmt.Sprintf("V%d", i)))
			}
		}},
		{"expired", func(t *Table, kept int) { t.Expire(now.Add(time.Duration(-kept) * time.Second)) }},
	} {
		table := New()
		for i := range n {
			table.Put(vehicle.ID(fmt.Sprintf("V%d", i)), answerAt(now.Add(time.Duration(-i)*time.Second)))
		}
		if most := n * 3 / 2; slotsOf(table) > most {
			t.Errorf("%d vehicles: got %d slots, want at most %d", n, slotsOf(table), most)
		}
		for _, kept := range []int{n / 2, n / 20, 0} {
			c.forget(table, kept)
			most := kept*9/5 + 2*smallest*shardCount
			if kept == 0 {
				c.forget(table, -1) // removes all vehicles, even the newest
				most = 0
			}
			if got := slotsOf(table); got > most {
				t.Errorf("%s: got %d slots of %d vehicles, want at most %d", c.how, got, table.Len(), most)
			}
		}
	}
}

func TestReaderOfAStalledWriter(t *testing.T) {
	var s shard
	s.init(0)
	k := key{1, 2}
	s.put(k, value{3, 4})
	s.mu.Lock()
	s.version.Add(1)
	read := make(chan value)
	go func() { v, _ := s.find(k); read <- v }()
	s.version.Add(1)
	s.mu.Unlock()
	if v := <-read; v != (value{3, 4}) {
		t.Errorf("the reader: got %v, want {3, 4}", v)
	}
	s.version.Add(1) // odd from now on, as if a write never ended
	if v, _ := s.find(k); v != (value{3, 4}) {
		t.Errorf("a write that never ends: got %v, want {3, 4}", v)
	}
}
