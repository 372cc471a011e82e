package ingest

import (
	"slices"
	"sync"
)

// budget is a quota of memory, in bytes, or of connections, that all sources share. A source that
// holds more than an eighth of it gets more only if, afterwards, at least as much is free as the
// source holds. So a single source can hold half of it at most, and the rest stays free for
// others.
type budget struct {
	size int

	mu      sync.Mutex // guards the fields below
	used    int
	held    map[string]int      // the part of used that each source holds
	waiting map[string][]*claim // by source, in order of arrival
	turn    []string            // sources with waiting claims, in the order of their turns
	short   bool                // a waiting claim is within its source's share but does not fit
}

// claim is a waiting request for a part of the budget.
type claim struct {
	bytes   int
	granted chan struct{} // closed when the bytes are taken
}

func newBudget(size int) *budget {
	return &budget{size: size, held: make(map[string]int), waiting: make(map[string][]*claim)}
}

// allows reports whether n more bytes are within a source's share. A source that holds nothing may
// take any free amount, so that every single request and message can be served. The caller holds
// mu.
func (b *budget) allows(source string, n int) bool {
	held := b.held[source]
	return held == 0 || held+n <= max(b.size/8, b.size-b.used-n)
}

// tryTake takes n bytes for a source and reports whether it did. It takes none if they exceed the
// source's share, or if an earlier claim waits for free bytes.
func (b *budget) tryTake(source string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tryLocked(source, n)
}

func (b *budget) tryLocked(source string, n int) bool {
	if b.short || b.used+n > b.size || !b.allows(source, n) {
		return false
	}
	b.used += n
	b.held[source] += n
	return true
}

// take waits until n bytes are free and takes them; if n exceeds the size of the budget, it takes
// the whole budget. It returns how much it took. ok is false if stop was closed first. Waiting
// sources take turns: small claims cannot starve a large one, and the claims of one source cannot
// starve those of another.
func (b *budget) take(source string, n int, stop <-chan struct{}) (got int, ok bool) {
	n = min(n, b.size)
	b.mu.Lock()
	if len(b.waiting[source]) == 0 && b.tryLocked(source, n) {
		b.mu.Unlock()
		return n, true
	}
	c := &claim{n, make(chan struct{})}
	if b.waiting[source] = append(b.waiting[source], c); len(b.waiting[source]) == 1 {
		b.turn = append(b.turn, source)
	}
	b.grant()
	b.mu.Unlock()
	select {
	case <-c.granted:
		return n, true
	case <-stop:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.granted: // between the two selects
		b.release(source, n)
	default:
		b.leave(source, slices.Index(b.waiting[source], c))
	}
	b.grant() // this claim may have been the only obstacle for those behind it
	return 0, false
}

// give returns n bytes of a source to the budget, and grants waiting claims.
func (b *budget) give(source string, n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(source, n)
	b.grant()
}

// release subtracts n bytes from what a source holds. The caller holds mu.
func (b *budget) release(source string, n int) {
	b.used -= n
	if b.held[source] -= n; b.held[source] == 0 {
		delete(b.held, source)
	}
}

// leave removes claim i of a source from the queue. The caller holds mu.
func (b *budget) leave(source string, i int) {
	if b.waiting[source] = slices.Delete(b.waiting[source], i, i+1); len(b.waiting[source]) == 0 {
		delete(b.waiting, source)
		at := slices.Index(b.turn, source)
		b.turn = slices.Delete(b.turn, at, at+1)
	}
}

// grant grants waiting claims, one source after the other. It skips sources whose share is used
// up (there are few) and stops at the first claim for which not enough is free. The caller holds
// mu.
func (b *budget) grant() {
	b.short = false
	for i := 0; i < len(b.turn); {
		source := b.turn[i]
		c := b.waiting[source][0]
		if !b.allows(source, c.bytes) {
			i++
			continue
		}
		if b.used+c.bytes > b.size {
			b.short = true
			return
		}
		b.used += c.bytes
		b.held[source] += c.bytes
		close(c.granted)
		b.leave(source, 0)
		if len(b.waiting[source]) > 0 { // the source's next claim waits behind the other sources
			b.turn = append(slices.Delete(b.turn, i, i+1), source)
		}
	}
}

// taken returns how much is in use.
func (b *budget) taken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// hold is a reservation: what one request, packet or message has taken of a budget.
type hold struct {
	of     *budget
	source string
	bytes  int
}

// holdStep is the least number of bytes by which cover enlarges a hold.
const holdStep = 16 << 10

// cover enlarges h to at least n bytes and reports whether it could. It never waits.
func (h *hold) cover(n int) bool {
	if n <= h.bytes {
		return true
	}
	more := max(n-h.bytes, holdStep)
	if !h.of.tryTake(h.source, more) {
		return false
	}
	h.bytes += more
	return true
}

// await waits until n more bytes are taken. It returns false if stop was closed first.
func (h *hold) await(n int, stop <-chan struct{}) bool {
	got, ok := h.of.take(h.source, n, stop)
	h.bytes += got
	return ok
}

// part splits n bytes off h, or all of h if it has fewer, and returns them.
func (h *hold) part(n int) hold {
	n = min(n, h.bytes)
	h.bytes -= n
	return hold{h.of, h.source, n}
}

// end returns everything to the budget.
func (h *hold) end() {
	if h.of != nil {
		h.of.give(h.source, h.bytes)
	}
	h.bytes = 0
}
