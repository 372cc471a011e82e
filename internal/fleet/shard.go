package fleet

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// Many, because a shard that grows copies itself while its writers wait.
const shardCount = 1024

// shard is a hash table with ordered linear probing: vehicles are sorted by key along the array, a
// ring, so a search ends at the first larger key. Arrays of any size have the same order (see home),
// so one pass copies to another size. On removal, the vehicles that follow move back.
//
// Writers hold mu. Readers take no lock: they read again if the version has changed. An array that
// was replaced never changes again.
type shard struct {
	mu       sync.Mutex             // serializes writers
	version  atomic.Uint64          // odd while slots are changed in place
	slots    atomic.Pointer[[]slot] // words that readers may see are loaded and stored atomically
	vehicles atomic.Int64
	phase    float64  // makes this shard's sizes differ from others
	_        [88]byte // separate pairs of cache lines, because pairs are fetched together
}

// slot is a key and a value; a key of zeros is free.
type slot [4]uint64

type key struct{ hi, lo uint64 }

const (
	maxLoad = 0.9 // a search then reads 5 slots on average; just after growing, 3
	// Small, because new slots are unused memory. A move takes 10 ns.
	growth   = 1.125
	minLoad  = 0.6
	smallest = 8
)

func (s *shard) init(phase float64) {
	s.phase = phase
	s.slots.Store(new([]slot))
}

// Shards have about the same number of vehicles, and with the same sizes would grow at the same
// time.
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

// After readTries, which take longer than a write (100 ns), the operating system must have suspended
// the writer, and a reader waits for the lock.
const readTries = 16

func (s *shard) find(k key) (v value, found bool) {
	for range readTries {
		before := s.version.Load()
		v, found = lookup(*s.slots.Load(), k)
		if before&1 == 0 && s.version.Load() == before {
			return v, found
		}
	}
	s.mu.Lock()
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

// home is monotonic in lo, so vehicles have the same order in arrays of any size.
func home(lo uint64, n int) int {
	h, _ := bits.Mul64(lo, uint64(n))
	return int(h)
}

// away is the distance from the home slot.
func away(i int, lo uint64, n int) int {
	d := i - home(lo, n)
	if d < 0 {
		d += n
	}
	return d
}

// search returns where a key is, or must be inserted.
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

func (a *slot) set(b slot) {
	for i := range b {
		atomic.StoreUint64(&a[i], b[i])
	}
}

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
	// Vehicles that wrapped around belong near the end, so they are moved last.
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
