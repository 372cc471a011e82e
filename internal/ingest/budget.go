package ingest

import "sync"

// budget is an amount of memory, in bytes, that many share. Who waits for some
// gets it in turn, so that a large message is not starved by small ones.
type budget struct {
	size int

	mu      sync.Mutex // guards what follows
	used    int
	waiting []*claim // first come first
}

// claim is one who waits.
type claim struct {
	bytes   int
	granted chan struct{} // closed when the bytes are its own
}

func newBudget(size int) *budget { return &budget{size: size} }

// take waits for n bytes, or for all there are if n is more. It returns what
// must be given back, and false if stop was closed first.
func (b *budget) take(n int, stop <-chan struct{}) (got int, ok bool) {
	n = min(n, b.size)
	b.mu.Lock()
	if len(b.waiting) == 0 && b.used+n <= b.size {
		b.used += n
		b.mu.Unlock()
		return n, true
	}
	c := &claim{n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
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
		b.used -= n
	default:
		for i := range b.waiting {
			if b.waiting[i] == c {
				b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
				break
			}
		}
	}
	b.grant() // those behind may have waited for this one alone
	return 0, false
}

// tryTake takes n bytes if they are there and nobody waits for them.
func (b *budget) tryTake(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || b.used+n > b.size {
		return false
	}
	b.used += n
	return true
}

// give gives n bytes back.
func (b *budget) give(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.grant()
}

// grant serves those who wait, in turn. The caller holds mu.
func (b *budget) grant() {
	for len(b.waiting) > 0 && b.used+b.waiting[0].bytes <= b.size {
		b.used += b.waiting[0].bytes
		close(b.waiting[0].granted)
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
	}
}

// taken is how much is in use.
func (b *budget) taken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// tab is what one request has taken of a budget. It grows and is never waited
// for: who cannot have more is to come back later.
type tab struct {
	budget *budget
	bytes  int
}

// tabStep is how much a tab takes at a time, at least.
const tabStep = 64 << 10

// cover sees that n bytes are taken, and reports whether they are.
func (t *tab) cover(n int) bool {
	if n <= t.bytes {
		return true
	}
	more := max(n-t.bytes, tabStep)
	if !t.budget.tryTake(more) {
		return false
	}
	t.bytes += more
	return true
}

// close gives everything back.
func (t *tab) close() {
	t.budget.give(t.bytes)
	t.bytes = 0
}
