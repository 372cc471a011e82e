package fleet

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// shardCount is the number of shards of a table, a power of two. A shard is copied when it grows,
// and with many shards each copy is small.
const shardCount = 1024

// shard is a part of the table. It is a hash table in one array of slots, with ordered linear
// probing: vehicles are sorted by key along the array, which is treated as a ring. A key is a hash
// of the vid. The search for a key begins at its home slot and ends at the first larger key. A
// larger key has the same or a later home slot, whatever the size of the array, so the vehicles are
// copied to an array of another size in one pass. If a vehicle is removed, the following vehicles
// move back by one slot, so no mark remains in its slot.
//
// Writers hold mu. Readers take no lock: they read again if the version has changed during a read.
// To grow or shrink, a writer copies the array. Readers use the old array until the copy is
// complete, and the old array never changes again.
type shard struct {
	mu       sync.Mutex             // serializes writers
	version  atomic.Uint64          // odd while slots are changed in place
	slots    atomic.Pointer[[]slot] // slot words that readers may see are loaded and stored atomically
	vehicles atomic.Int64
	phase    float64  // 0 to 1; makes this shard's sizes differ from those of other shards
	_        [88]byte // keeps shards in separate pairs of cache lines, because pairs are fetched together
}

// slot holds the key and the value of a vehicle. A slot with a key of zeros is free.
type slot [4]uint64

type key struct{ hi, lo uint64 }

const (
	// maxLoad is the maximum fill of an array, as a fraction. At this load, a search reads 5 slots
	// on average; just after growing, it reads 3.
	maxLoad = 0.9
	// growth is the factor between the sizes of an array before and after it grows. It is
	// small, because the slots that growing adds are unused memory at first. While an array
	// grows tenfold, a vehicle is moved about nine times, at 10 ns each.
	growth = 1.125
	// minLoad is the load below which an array shrinks.
	minLoad = 0.6
	// smallest is the smallest number of slots of an array that is not empty.
	smallest = 8
)

func (s *shard) init(phase float64) {
	s.phase = phase
	s.slots.Store(new([]slot))
}

// size returns the number of slots of an array for a number of vehicles: 0 for no vehicle, and
// otherwise the smallest size of the shard's sequence of sizes at which the load is at most
// maxLoad. The sequence begins with smallest × (1 + phase × (growth − 1)), and each size is growth
// times the one before. The result is rounded up. Each shard has its own sequence of sizes, because
// it has its own phase. All shards have about the same number of vehicles, so with equal sizes all
// shards would grow at the same time.
func (s *shard) size(vehicles int) int {
	if vehicles == 0 {
		return 0
	}
	size := smallest * (1 + s.phase*(growth-1))
	for size*maxLoad < float64(vehicles) {
		size *= growth
	}
	return int(math.Ceil(size))
}

// readTries is the number of reads that may collide with a write before the reader takes the lock.
// A write takes about 100 ns.
const readTries = 16

// get returns a vehicle's value, or zeros if it is not in the shard.
func (s *shard) get(k key) value {
	v, _ := s.find(k)
	return v
}

func (s *shard) find(k key) (v value, found bool) {
	for range readTries {
		before := s.version.Load()
		v, found = lookup(*s.slots.Load(), k)
		if before&1 == 0 && s.version.Load() == before {
			return v, found
		}
	}
	s.mu.Lock() // the operating system has suspended the writer
	defer s.mu.Unlock()
	return lookup(*s.slots.Load(), k)
}

func lookup(a []slot, k key) (v value, found bool) {
	i, found := search(a, k)
	if !found {
		return v, false
	}
	return value{atomic.LoadUint64(&a[i][2]), atomic.LoadUint64(&a[i][3])}, true
}

// home returns the slot at which the search for a key begins, in an array of n slots: ⌊lo × n /
// 2⁶⁴⌋. lo is the half of the key by which arrays are sorted. The slot for a greater lo is the same
// or a later one, so vehicles have the same order in arrays of any size.
func home(lo uint64, n int) int {
	h, _ := bits.Mul64(lo, uint64(n))
	return int(h)
}

// away returns the distance from the home slot of a key to slot i, where the key is, in an array of
// n slots: (i − home) modulo n. lo is that of home.
func away(i int, lo uint64, n int) int {
	d := i - home(lo, n)
	if d < 0 {
		d += n
	}
	return d
}

// search returns the slot of a key. If the array does not have the key, found is false and i is the
// slot in which the key must be inserted.
func search(a []slot, k key) (i int, found bool) {
	i = home(k.lo, len(a))
	for far := range a {
		hi, lo := atomic.LoadUint64(&a[i][0]), atomic.LoadUint64(&a[i][1])
		if lo == k.lo && hi == k.hi {
			return i, true
		}
		if hi|lo == 0 {
			return i, false
		}
		if d := away(i, lo, len(a)); d < far || d == far && lo > k.lo {
			return i, false
		}
		i = after(i, len(a))
	}
	return i, false // reached only during a concurrent write
}

func after(i, n int) int {
	if i++; i == n {
		return 0
	}
	return i
}

func (a *slot) free() bool { return a[0]|a[1] == 0 }

// set copies the slot b to the slot a, one word after the other. Each word is stored atomically,
// because a reader may read a at the same time.
func (a *slot) set(b slot) {
	for i := range b {
		atomic.StoreUint64(&a[i], b[i])
	}
}

// put stores a vehicle's value and returns the value that it replaces, if there was one.
func (s *shard) put(k key, v value) (old value, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := *s.slots.Load()
	i, found := search(a, k)
	if found {
		old = value{a[i][2], a[i][3]}
		s.version.Add(1)
		atomic.StoreUint64(&a[i][2], v[0])
		atomic.StoreUint64(&a[i][3], v[1])
		s.version.Add(1)
		return old, true
	}
	if b := s.room(a, int(s.vehicles.Add(1))); len(b) != len(a) {
		a = b
		i, _ = search(a, k)
	}
	s.version.Add(1)
	insert(a, i, slot{k.hi, k.lo, v[0], v[1]})
	s.version.Add(1)
	return old, false
}

// room returns an array in which n vehicles fit: the array a of the shard, or a larger copy.
func (s *shard) room(a []slot, n int) []slot {
	if float64(n) <= maxLoad*float64(len(a)) {
		return a
	}
	return s.replace(a, n, func(*slot) bool { return true })
}

func (s *shard) grow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room(*s.slots.Load(), n)
}

// insert stores a vehicle in slot i, where it belongs. To make slot i free, insert first moves the
// vehicles from slot i up to the next free slot by one slot each.
func insert(a []slot, i int, e slot) {
	end := i
	for !a[end].free() {
		end = after(end, len(a))
	}
	for end != i {
		before := end - 1
		if end == 0 {
			before = len(a) - 1
		}
		a[end].set(a[before])
		end = before
	}
	a[i].set(e)
}

// remove removes a vehicle and reports whether it was in the shard.
func (s *shard) remove(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := *s.slots.Load()
	i, found := search(a, k)
	if !found {
		return false
	}
	s.version.Add(1)
	for next := after(i, len(a)); !a[next].free() && away(next, a[next][1], len(a)) > 0; next = after(next, len(a)) {
		a[i].set(a[next])
		i = next
	}
	a[i].set(slot{})
	s.version.Add(1)
	if n := int(s.vehicles.Add(-1)); float64(n) < minLoad*float64(len(a)) {
		s.replace(a, n, func(*slot) bool { return true })
	}
	return true
}

// removeIf removes each vehicle for whose value old returns true.
func (s *shard) removeIf(old func(value) bool) (removed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := *s.slots.Load()
	stays := func(e *slot) bool { return !old(value{e[2], e[3]}) }
	for i := range a {
		if !a[i].free() && !stays(&a[i]) {
			removed++
		}
	}
	if removed > 0 {
		s.replace(a, int(s.vehicles.Add(int64(-removed))), stays)
	}
	return removed
}

// replace gives the shard a new array for n vehicles, and returns it. It copies those vehicles of
// the old array a for which stays returns true.
func (s *shard) replace(a []slot, n int, stays func(*slot) bool) []slot {
	// The size is rounded up to what the allocator provides.
	b := slices.Grow([]slot(nil), s.size(n))
	b = b[:cap(b)]
	next := 0
	move := func(e *slot) {
		if e.free() || !stays(e) {
			return
		}
		next = max(next, home(e[1], len(b)))
		if next < len(b) {
			b[next] = *e
			next++
			return
		}
		i, _ := search(b, key{e[0], e[1]})
		insert(b, i, *e)
	}
	// The vehicles must stay in order. Some vehicles at the beginning of the array have a home slot
	// near its end: they wrapped around. So these are moved last.
	round := 0
	for round < len(a) && !a[round].free() && away(round, a[round][1], len(a)) > round {
		round++
	}
	for i := round; i < len(a); i++ {
		move(&a[i])
	}
	for i := range round {
		move(&a[i])
	}
	s.slots.Store(&b)
	return b
}

// each calls do for each vehicle. The writers of the shard wait until it returns; readers do not.
func (s *shard) each(do func(*slot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := *s.slots.Load()
	for i := range a {
		if e := &a[i]; !e.free() {
			do(e)
		}
	}
}
