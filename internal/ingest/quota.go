package ingest

import (
	"slices"
	"sync"
)

// quota is an amount of memory, in bytes, or a number of connections, that all sources share. A
// source may hold up to an eighth of the quota. It may hold more only if at least as much remains
// free as the source then holds. So one source can hold at most half of the quota, and the rest
// remains free for others. As an exception, a source that holds nothing may take any free amount.
type quota struct {
	size int

	mu      sync.Mutex // guards the fields below
	used    int
	held    map[string]int      // the part of used that each source holds
	waiting map[string][]*claim // by source, in order of arrival
	turn    []string            // sources with waiting claims, in the order of their turns
	short   bool                // a waiting claim is within its source's share but does not fit
}

// claim is a call of acquire that waits for a part of the quota.
type claim struct {
	bytes   int
	granted chan struct{} // closed when the bytes are taken
}

func newQuota(size int) *quota {
	return &quota{size: size, held: make(map[string]int), waiting: make(map[string][]*claim)}
}

// withinShare reports whether the source's share allows n more, free or not. It does if the source
// holds nothing, so that the only request or message can always be served. The caller holds mu.
func (q *quota) withinShare(source string, n int) bool {
	held := q.held[source]
	return held == 0 || held+n <= max(q.size/8, q.size-q.used-n)
}

// tryAcquire takes n bytes or connections for a source, without waiting. It takes nothing if fewer
// are free or within the source's share, or if an earlier call of acquire still waits for free bytes.
func (q *quota) tryAcquire(source string, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tryAcquireLocked(source, n)
}

func (q *quota) tryAcquireLocked(source string, n int) bool {
	if q.short || q.used+n > q.size || !q.withinShare(source, n) {
		return false
	}
	q.used += n
	q.held[source] += n
	return true
}

// acquire waits until n bytes, at most the whole quota, are free and within the source's share, and
// takes them. If stop is closed while it waits, got is 0 and ok is false.
//
// Sources with waiting calls are served in turn, so the calls of one source cannot starve those of
// another. While a call within its source's share waits for free bytes, no other call is served, so
// small calls cannot starve a large one.
func (q *quota) acquire(source string, n int, stop <-chan struct{}) (got int, ok bool) {
	n = min(n, q.size)
	q.mu.Lock()
	if len(q.waiting[source]) == 0 && q.tryAcquireLocked(source, n) {
		q.mu.Unlock()
		return n, true
	}
	c := &claim{n, make(chan struct{})}
	if q.waiting[source] = append(q.waiting[source], c); len(q.waiting[source]) == 1 {
		q.turn = append(q.turn, source)
	}
	q.grantWaiting()
	q.mu.Unlock()
	select {
	case <-c.granted:
		return n, true
	case <-stop:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-c.granted: // between the two selects
		q.subtract(source, n)
	default:
		q.removeClaim(source, slices.Index(q.waiting[source], c))
	}
	q.grantWaiting() // this claim may have been the only obstacle for those behind it
	return 0, false
}

// release returns n bytes or connections of a source to the quota, and serves waiting calls.
func (q *quota) release(source string, n int) {
	if n == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.subtract(source, n)
	q.grantWaiting()
}

// subtract is release without serving waiting calls. The caller holds mu.
func (q *quota) subtract(source string, n int) {
	q.used -= n
	if q.held[source] -= n; q.held[source] == 0 {
		delete(q.held, source)
	}
}

// removeClaim removes q.waiting[source][i]. The caller holds mu.
func (q *quota) removeClaim(source string, i int) {
	if q.waiting[source] = slices.Delete(q.waiting[source], i, i+1); len(q.waiting[source]) == 0 {
		delete(q.waiting, source)
		at := slices.Index(q.turn, source)
		q.turn = slices.Delete(q.turn, at, at+1)
	}
}

// grantWaiting serves the oldest waiting call of each source in turn. It skips a source whose share is
// used up, and stops at a call that does not fit, so that no smaller one overtakes. The caller holds mu.
func (q *quota) grantWaiting() {
	q.short = false
	for i := 0; i < len(q.turn); {
		source := q.turn[i]
		c := q.waiting[source][0]
		if !q.withinShare(source, c.bytes) {
			i++
			continue
		}
		if q.used+c.bytes > q.size {
			q.short = true
			return
		}
		q.used += c.bytes
		q.held[source] += c.bytes
		close(c.granted)
		q.removeClaim(source, 0)
		if len(q.waiting[source]) > 0 { // the source's next claim waits behind the other sources
			q.turn = append(slices.Delete(q.turn, i, i+1), source)
		}
	}
}

func (q *quota) inUse() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

// reservation is the part of a quota that one request, packet, message or connection holds.
type reservation struct {
	of     *quota
	source string
	bytes  int
}

// reservationStep is the least number of bytes by which reserve enlarges a reservation.
const reservationStep = 16 << 10

// reserve enlarges r to at least n bytes and reports whether it succeeded. If not, r is unchanged.
// It never waits.
func (r *reservation) reserve(n int) bool {
	if n <= r.bytes {
		return true
	}
	more := max(n-r.bytes, reservationStep)
	if !r.of.tryAcquire(r.source, more) {
		return false
	}
	r.bytes += more
	return true
}

// reserveWait enlarges r by n bytes, or by the whole quota if n exceeds it, as acquire does. If
// stop is closed while it waits, it returns false and r is unchanged.
func (r *reservation) reserveWait(n int, stop <-chan struct{}) bool {
	got, ok := r.of.acquire(r.source, n, stop)
	r.bytes += got
	return ok
}

// split removes n bytes from r, or all of r if it has fewer, and returns them as a new reservation.
func (r *reservation) split(n int) reservation {
	n = min(n, r.bytes)
	r.bytes -= n
	return reservation{r.of, r.source, n}
}

func (r *reservation) release() {
	if r.of != nil {
		r.of.release(r.source, r.bytes)
	}
	r.bytes = 0
}
