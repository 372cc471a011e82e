package ingest

import (
	"slices"
	"sync"
)

// All sources share a quota of bytes or connections (DESIGN.md, "Share").
type quota struct {
	size int

	mu      sync.Mutex // guards the fields below; methods that do not lock it need it locked
	used    int
	held    map[string]int // by source
	waiting map[string][]*claim
	turn    []string // sources with claims, in order
	short   bool     // a claim within its source's share does not fit yet
}

type claim struct {
	bytes   int
	granted chan struct{} // closed when the bytes are taken
}

func newQuota(size int) *quota {
	return &quota{size: size, held: make(map[string]int), waiting: make(map[string][]*claim)}
}

// A source may hold an eighth of the quota, or as much as it leaves free, or one claim of any size.
func (q *quota) withinShare(source string, n int) bool {
	held := q.held[source]
	return held == 0 || held+n <= max(q.size/8, q.size-q.used-n)
}

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

// acquire waits for n, at most the whole quota, until stop is closed. Sources take turns. A claim
// within its source's share blocks all others until it fits, so small ones cannot starve a large
// one.
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
	if at := slices.Index(q.waiting[source], c); at >= 0 {
		q.removeClaim(source, at)
	} else { // c was granted at the same time
		q.subtract(source, n)
	}
	q.grantWaiting() // claims behind c may fit now
	return 0, false
}

func (q *quota) release(source string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.subtract(source, n)
	q.grantWaiting()
}

func (q *quota) subtract(source string, n int) {
	q.used -= n
	if q.held[source] -= n; q.held[source] == 0 {
		delete(q.held, source)
	}
}

func (q *quota) removeClaim(source string, i int) {
	if q.waiting[source] = slices.Delete(q.waiting[source], i, i+1); len(q.waiting[source]) == 0 {
		delete(q.waiting, source)
		at := slices.Index(q.turn, source)
		q.turn = slices.Delete(q.turn, at, at+1)
	}
}

func (q *quota) grantWaiting() {
	q.short = false
	for i := 0; i < len(q.turn); {
		source := q.turn[i]
		c := q.waiting[source][0]
		if !q.withinShare(source, c.bytes) {
			i++
			continue
		}
		if q.short = !q.tryAcquireLocked(source, c.bytes); q.short {
			return
		}
		close(c.granted)
		q.removeClaim(source, 0)
		if len(q.waiting[source]) > 0 { // the other sources come first
			q.turn = append(slices.Delete(q.turn, i, i+1), source)
		}
	}
}

func (q *quota) inUse() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

type reservation struct {
	of     *quota
	source string
	bytes  int
}

const reservationStep = 16 << 10

// reserve enlarges r to n, by at least reservationStep, without waiting.
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

func (r *reservation) reserveWait(n int, stop <-chan struct{}) bool {
	got, ok := r.of.acquire(r.source, n, stop)
	r.bytes += got
	return ok
}

func (r *reservation) split(n int) reservation {
	n = min(n, r.bytes)
	r.bytes -= n
	return reservation{r.of, r.source, n}
}

func (r *reservation) release() {
	if r.bytes > 0 {
		r.of.release(r.source, r.bytes)
	}
	r.bytes = 0
}
