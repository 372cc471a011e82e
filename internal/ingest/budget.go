package ingest

import (
	"slices"
	"sync"
)

// budget is an amount of memory, in bytes, or of connections that all sources share. A
// source that holds more than an eighth of it gets more only if as much stays free as the
// source then holds. So one source alone holds half at most, and the rest is left to others.
type budget struct {
	size int

	mu      sync.Mutex // guards what follows
	used    int
	held    map[string]int      // the parts of used, by source
	waiting map[string][]*claim // by source, first come first
	turn    []string            // the sources that have claims waiting, the next one first
	short   bool                // the budget is too full for a claim that its source's share allows
}

// claim is a part of the budget that somebody waits for.
type claim struct {
	bytes   int
	granted chan struct{} // closed when the bytes are taken
}

func newBudget(size int) *budget {
	return &budget{size: size, held: make(map[string]int), waiting: make(map[string][]*claim)}
}

// allows reports whether the share of a source has room for n bytes. A source that holds
// nothing may take whatever there is, so that each request and message can be served. The
// caller holds mu.
func (b *budget) allows(source string, n int) bool {
	held := b.held[source]
	return held == 0 || held+n <= max(b.size/8, b.size-b.used-n)
}

// tryTake takes n bytes for a source if its share has room for them and no claim that
// came before waits for room.
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

// take waits for n bytes, or for the whole budget if n is more. It returns what must be
// given back, and false if stop was closed first. Sources that wait take turns, so that a
// large claim is not starved by small ones, and claims of one source not by another's.
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
	case <-c.granted: // meanwhile
		b.release(source, n)
	default:
		b.leave(source, slices.Index(b.waiting[source], c))
	}
	b.grant() // those behind may have waited for this one alone
	return 0, false
}

// give gives back n bytes of a source.
func (b *budget) give(source string, n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(source, n)
	b.grant()
}

// release gives back n bytes of a source. The caller holds mu.
func (b *budget) release(source string, n int) {
	b.used -= n
	if b.held[source] -= n; b.held[source] == 0 {
		delete(b.held, source)
	}
}

// leave takes a claim of a source out of those that wait. The caller holds mu.
func (b *budget) leave(source string, i int) {
	if b.waiting[source] = slices.Delete(b.waiting[source], i, i+1); len(b.waiting[source]) == 0 {
		delete(b.waiting, source)
		at := slices.Index(b.turn, source)
		b.turn = slices.Delete(b.turn, at, at+1)
	}
}

// grant serves the claims that wait, in turn. It passes over sources whose share is used up
// (there are few) and stops at the first claim that the budget has no room for. The caller
// holds mu.
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
		if len(b.waiting[source]) > 0 { // its turn comes again after the others'
			b.turn = append(slices.Delete(b.turn, i, i+1), source)
		}
	}
}

// taken is how much is in use.
func (b *budget) taken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// hold is what one request, packet or message has taken of a budget.
type hold struct {
	of     *budget
	source string
	bytes  int
}

// holdStep is how much a hold that grows takes at a time, at least.
const holdStep = 16 << 10

// cover sees that n bytes are taken, without waiting, and reports whether they are.
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

// await waits for n bytes more, and returns false if stop was closed first.
func (h *hold) await(n int, stop <-chan struct{}) bool {
	got, ok := h.of.take(h.source, n, stop)
	h.bytes += got
	return ok
}

// part splits off n bytes, or all that there are.
func (h *hold) part(n int) hold {
	n = min(n, h.bytes)
	h.bytes -= n
	return hold{h.of, h.source, n}
}

// end gives everything back.
func (h *hold) end() {
	if h.of != nil {
		h.of.give(h.source, h.bytes)
	}
	h.bytes = 0
}
