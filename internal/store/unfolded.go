package store

import (
	"sync"
	"time"

	"example.org/carstate/internal/access"
)

const (
	foldShare   = 150 * time.Millisecond // see [Unfolded.Reserve]
	firstSpeed  = 50_000                 // samples per second, at first
	quiet       = 1_000                  // With fewer unfolded samples, a new one is folded at once.
	speedWindow = 50 * time.Millisecond  // the shortest time over which the speed is measured
	// Each window without a backlog raises a speed below firstSpeed by this part of the difference:
	// it may be that of a pause, and sources that it bounds make no backlog in which to measure it
	// again.
	forgetSpeed = 64
	// If a partition makes no progress for stalledAfter, no node folds it. Its samples are then not
	// counted, because the sources are not to blame.
	stalledAfter = 2 * time.Second
	maxLatency   = time.Second // The latency, which is added to foldShare, is at most this.
	maxUnfolded  = 1 << 17     // From maxUnfolded on, a new entry replaces the oldest of its partition.
)

// Unfolded counts and bounds, by source, the samples that this process has stored or is storing and
// that are not folded. Samples are folded in the order of storing, so an unbounded source would
// delay the answers of all others.
type Unfolded struct {
	now func() time.Time

	mu       sync.Mutex // guards the fields below
	parts    []unfoldedPart
	held     map[uint32]int // samples by source, reserved ones included
	stored   int
	entries  int
	speed    float64       // samples folded in a second
	latency  time.Duration // from storing to folding, while there is no backlog
	since    time.Time     // start of the present window
	measured int           // samples folded in this window
	behind   bool          // there was a backlog during all of this window
}

type unfoldedPart struct {
	entries  []unfoldedEntry
	folded   uint64    // the partition is folded up to this sequence
	advanced time.Time // when folded last changed
	stalled  bool      // until folded changes, samples are not counted
}

type unfoldedEntry struct {
	seq     uint64
	at      time.Time
	source  uint32
	samples int
	quiet   bool // there was no backlog when the samples were stored
}

// The latency is an estimate until it has been measured.
func NewUnfolded(partitions int, latency time.Duration, now func() time.Time) *Unfolded {
	return &Unfolded{now: now, parts: make([]unfoldedPart, partitions), held: make(map[uint32]int), speed: firstSpeed,
		latency: latency}
}

// Reserve counts n samples of a source that are about to be stored, if it has room, and otherwise
// estimates the wait. The caller returns the reservation with Release once the samples are stored,
// because the engine counts them from then on. With n = 0, Reserve only reports.
//
// A source's room is what is folded within foldShare and the latency, less one batch of the maximum
// size, but at least half: a source that has any room may send a whole batch.
func (u *Unfolded) Reserve(source uint32, n int) (wait time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	bound := u.speed * (foldShare + u.latency).Seconds()
	room := int(max(bound-access.MaxBatch, bound/2, 1))
	if u.held[source] >= room {
		u.dropStalled()
	}
	if over := u.held[source] - room; over >= 0 {
		return max(time.Millisecond, time.Duration(float64(over+1)/u.speed*float64(time.Second))), false
	}
	u.add(source, n)
	return 0, true
}

func (u *Unfolded) Release(source uint32, n int) {
	if n == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.add(source, -n)
}

// The caller of add holds mu.
func (u *Unfolded) add(source uint32, n int) {
	if u.held[source] += n; u.held[source] == 0 {
		delete(u.held, source)
	}
}

// Store counts stored samples. Sequences of a partition must not decrease.
func (u *Unfolded) Store(p int, seq uint64, source uint32, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	part := &u.parts[p]
	if seq <= part.folded || part.stalled {
		return
	}
	for len(part.entries) > 0 && u.entries >= maxUnfolded {
		u.pop(part)
	}
	now := u.now()
	if last := len(part.entries) - 1; last >= 0 && part.entries[last].seq == seq && part.entries[last].source == source {
		part.entries[last].samples += n
	} else {
		part.entries = append(part.entries, unfoldedEntry{seq, now, source, n, u.stored < quiet})
		u.entries++
	}
	u.stored += n
	u.add(source, n)
	if !u.behind && u.backlogged() {
		u.begin(now)
	}
}

// backlogged reports whether enough is stored to keep folding busy: only then can the speed of
// folding be measured. The caller holds mu.
func (u *Unfolded) backlogged() bool {
	return u.stored >= max(quiet, int(u.speed*(u.latency+speedWindow).Seconds()))
}

// The caller of begin holds mu.
func (u *Unfolded) begin(now time.Time) { u.since, u.measured, u.behind = now, 0, u.backlogged() }

func (u *Unfolded) Fold(p int, seq uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	part := &u.parts[p]
	if seq == part.folded {
		return
	}
	now := u.now()
	part.folded, part.advanced, part.stalled = seq, now, false
	n, took := 0, time.Millisecond
	for len(part.entries) > 0 && part.entries[0].seq <= seq {
		e := u.pop(part)
		n += e.samples
		took = max(took, now.Sub(e.at))
		if e.quiet {
			u.latency = min(maxLatency, u.latency+(now.Sub(e.at)-u.latency)/8)
		}
	}
	if n > quiet/2 { // by a quarter of the difference: the next samples may take longer
		u.speed += max(0, min(float64(n)/took.Seconds(), 4*firstSpeed)-u.speed) / 4
	}
	u.measured += n
	switch took := now.Sub(u.since); {
	case took < speedWindow || u.measured == 0:
		if u.behind && !u.backlogged() {
			u.begin(now)
		}
		return
	case u.behind:
		u.speed += (float64(u.measured)/took.Seconds() - u.speed) / 4
	default:
		u.speed += max(0, firstSpeed-u.speed) / forgetSpeed
	}
	u.begin(now)
}

// The caller of pop holds mu.
func (u *Unfolded) pop(part *unfoldedPart) unfoldedEntry {
	e := part.entries[0]
	if part.entries = part.entries[1:]; len(part.entries) == 0 {
		part.entries = nil // frees the array
	}
	u.entries--
	u.stored -= e.samples
	u.add(e.source, -e.samples)
	return e
}

// The caller of dropStalled holds mu.
func (u *Unfolded) dropStalled() {
	now := u.now()
	for i := range u.parts {
		part := &u.parts[i]
		if len(part.entries) == 0 || now.Sub(part.advanced) < stalledAfter || now.Sub(part.entries[0].at) < stalledAfter {
			continue
		}
		for len(part.entries) > 0 {
			u.pop(part)
		}
		part.stalled = true
		u.begin(now)
	}
}
