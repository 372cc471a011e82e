package fleet

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// shard is a part of the table: an array of slots, searched from the place that
// the key names on. Along the array, which is closed to a ring, vehicles stand in
// the order of their keys (ordered linear probing). So a search ends at the first
// larger key, an array is copied to another size in one pass, and nothing marks
// the slots of those that were removed: the ones behind move up.
//
// Writers take turns. Readers take no lock: they look at the version before and
// after. An array that is to grow or shrink is copied beside the old one, which
// is read meanwhile and never changed again.
type shard struct {
	mu       sync.Mutex             // held by the one who writes
	version  atomic.Uint64          // odd while slots are changed in place
	slots    atomic.Pointer[[]slot] // words of a slot that readers may see are loaded and stored atomically
	vehicles atomic.Int64
	phase    float64  // 0 to 1: sets this shard's sizes apart from the others'
	_        [88]byte // no two shards share a cache line, nor the pair that is fetched at once
}

// slot is a vehicle: key, value. All zero: free.
type slot [4]uint64

type key struct{ hi, lo uint64 }

const (
	// maxLoad is how full an array may be. A search passes 5 slots on average
	// at this load, 3 at the least that growth leaves.
	maxLoad = 0.9
	// growth is the step between sizes, small because that is how much memory
	// is to spare. A vehicle is moved some nine times for each tenfold growth
	// of the array, about 10 ns each.
	growth = 1.125
	// minLoad is where an array that lost vehicles is made smaller.
	minLoad = 0.6
	// smallest is the least number of slots of an array in use.
	smallest = 8
)

func (s *shard) init(phase float64) {
	s.phase = phase
	s.slots.Store(new([]slot))
}

// size is the number of slots for so many vehicles. All shards are about
// equally full, so each has sizes of its own: otherwise all would grow at once.
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

// readTries is how often a reader looks again after a writer came between,
// which takes some 100 ns, before it waits for its turn.
const readTries = 16

// get returns a vehicle's value, zeros if there is none.
func (s *shard) get(k key) value {
	v, _ := s.find(k)
	return v
}

// find returns a vehicle's value, and whether the vehicle is known.
func (s *shard) find(k key) (v value, found bool) {
	for range readTries {
		before := s.version.Load()
		v, found = look(*s.slots.Load(), k)
		if before&1 == 0 && s.version.Load() == before {
			return v, found
		}
	}
	s.mu.Lock() // the writer lost its processor
	defer s.mu.Unlock()
	return look(*s.slots.Load(), k)
}

func look(a []slot, k key) (v value, found bool) {
	i, found := search(a, k)
	if !found {
		return v, false
	}
	return value{atomic.LoadUint64(&a[i][2]), atomic.LoadUint64(&a[i][3])}, true
}

// home is the place in n slots where the search for a key begins. It grows with
// the key, so that vehicles keep their order in an array of another size.
func home(lo uint64, n int) int {
	h, _ := bits.Mul64(lo, uint64(n))
	return int(h)
}

// away is how far slot i of n is behind the home of the key in it.
func away(i int, lo uint64, n int) int {
	d := i - home(lo, n)
	if d < 0 {
		d += n
	}
	return d
}

// search finds the slot of a key, or the one where it belongs.
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
	return i, false // only when a writer came between
}

func after(i, n int) int {
	if i++; i == n {
		return 0
	}
	return i
}

func (a *slot) free() bool { return a[0]|a[1] == 0 }

// set stores a slot that readers may be looking at.
func (a *slot) set(b slot) {
	for i := range b {
		atomic.StoreUint64(&a[i], b[i])
	}
}

// put stores a vehicle's value, and reports whether the vehicle is new.
func (s *shard) put(k key, v value) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := *s.slots.Load()
	i, found := search(a, k)
	if found {
		s.version.Add(1)
		atomic.StoreUint64(&a[i][2], v[0])
		atomic.StoreUint64(&a[i][3], v[1])
		s.version.Add(1)
		return false
	}
	n := int(s.vehicles.Add(1))
	if float64(n) > maxLoad*float64(len(a)) {
		a = s.replace(a, n, func(*slot) bool { return true })
		i, _ = search(a, k)
	}
	s.version.Add(1)
	insert(a, i, slot{k.hi, k.lo, v[0], v[1]})
	s.version.Add(1)
	return true
}

// insert puts a vehicle into slot i, where it belongs, and moves what was there
// on.
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

// remove forgets a vehicle, and reports whether it was known.
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

// removeIf forgets the vehicles whose value the function wants to be forgotten,
// and returns how many.
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

// replace copies those of the vehicles in a that stay to an array for n, which
// readers see from then on.
func (s *shard) replace(a []slot, n int, stays func(*slot) bool) []slot {
	// Rounded up to what the allocator hands out anyway.
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
	// In order: those that went round the end belong there.
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

// appendAll appends the value of every vehicle.
func (s *shard) appendAll(all []value) []value {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := *s.slots.Load()
	for i := range a {
		if !a[i].free() {
			all = append(all, value{a[i][2], a[i][3]})
		}
	}
	return all
}
