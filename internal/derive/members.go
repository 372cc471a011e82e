package derive

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
)

// heldPoll is the pause before this node looks again for an assignment or a release of a partition, and
// after a failed release or renewal.
const heldPoll = 250 * time.Millisecond

// Leases stores the leases by which nodes with the role derive know of each other.
type Leases interface {
	// Stale returns the lease time, after which others take over the partitions of a silent node.
	Stale() time.Duration
	// Renew stores this node's lease. beat increases with each renewal, and is never 0.
	Renew(ctx context.Context, name string, beat uint64, leaving bool) error
	// Follow calls put for every stored lease and then for every renewal. It returns nil when the
	// context ends, and an error if it cannot continue.
	Follow(ctx context.Context, put func(name string, beat uint64, leaving bool)) error
	Remove(ctx context.Context, name string) error
}

// Members assigns the partitions to the nodes with the role derive. Every node computes that itself, by
// its own clock, from the leases that it has received. If two disagree for a moment, the partition's
// cursor decides.
type Members struct {
	self   string
	leases Leases
	stale  time.Duration
	log    *slog.Logger
	began  time.Time // see beatAt

	mu   sync.Mutex // guards the fields below except unrenewed
	seen map[string]*member
	// heard is when renewals of this node's own lease were delivered. A lease time after the
	// last delivery, this node is disconnected, and considers no other dead.
	heard contact
	// The next two fields tell up to which time this node has received all renewals, even if the
	// feed is late: it delivers them in stored order, so one of our own shows that those before it
	// were delivered.
	asOf      time.Time // when our newest delivered renewal began
	stored    contact   // about acknowledgements of our renewals
	unrenewed lograte.Warning

	partitions []assigned
}

// contact tells when something that each renewal brings came last, and first after a gap.
type contact struct{ last, resumed time.Time }

func (c *contact) note(now time.Time, gap time.Duration) {
	if c.last.IsZero() || now.Sub(c.last) > gap {
		c.resumed = now
	}
	c.last = now
}

type member struct {
	beat    uint64
	at      time.Time // when its lease was last seen to change
	leaving bool
}

type assigned struct {
	ctx    context.Context // ends when the partition is assigned to another node; nil if it is not ours
	cancel context.CancelFunc
}

// NewMembers returns a Members that assigns no partitions until [Members.Run] runs. No other process,
// past or present, may have the name self.
func NewMembers(self string, partitions int, l Leases, log *slog.Logger) *Members {
	return &Members{
		self: self, leases: l, stale: l.Stale(), log: log, began: time.Now(),
		seen: make(map[string]*member), partitions: make([]assigned, partitions),
	}
}

const (
	renewalsPerLease = 3
	checksPerLease   = 24  // for stale leases
	removeAfter      = 100 // lease times until the lease of a dead node is deleted
)

// Run renews this node's lease and follows those of others until the context ends. Then it stores a
// last lease, which says that this node leaves. If [Leases].Follow fails, it goes on renewing, and
// returns that error in the end.
func (m *Members) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer m.leave()
	defer running.Wait()
	running.Go(func() { m.renew(ctx) })
	running.Go(func() {
		for range periodic.Every(ctx, m.stale/checksPerLease) {
			for _, name := range m.checkLeases(time.Now()) {
				if err := m.leases.Remove(ctx, name); err != nil && ctx.Err() == nil {
					m.log.Warn("cannot delete the lease of a dead node", "member", name, "error", err)
				}
			}
		}
	})
	return m.leases.Follow(ctx, func(name string, beat uint64, leaving bool) {
		m.recordLease(time.Now(), name, beat, leaving)
	})
}

func (m *Members) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assign(nil)
}

func (m *Members) renew(ctx context.Context) {
	every := m.stale / renewalsPerLease
	for rest := time.Duration(0); periodic.Pause(ctx, rest) == nil; {
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, every)
		err := m.leases.Renew(try, m.self, m.beatAt(began), false)
		cancel()
		if err == nil {
			m.recordRenewal(time.Now())
			rest = every - time.Since(began)
		} else if ctx.Err() == nil {
			m.unrenewed.Log(m.log, "cannot renew this node's lease; will retry", "error", err)
			rest = heldPoll // soon, because without a renewal other nodes consider this node dead
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if err := m.leases.Renew(last, m.self, m.beatAt(time.Now()), true); err != nil {
		m.log.Warn("cannot announce to the other nodes that this one leaves", "error", err)
	}
}

// leaveWithin limits each release of an ending node, and its last lease, after which others take over
// at once.
const leaveWithin = 500 * time.Millisecond

// beatAt is the beat of our renewal that began at a time.
func (m *Members) beatAt(began time.Time) uint64 { return uint64(1 + began.Sub(m.began)) }

// gap is longer than the time between two renewals: an outage.
func (m *Members) gap() time.Duration { return 2 * m.stale / renewalsPerLease }

func (m *Members) recordRenewal(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored.note(now, m.gap())
}

func (m *Members) recordLease(now time.Time, name string, beat uint64, leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is := m.seen[name]; is != nil && is.beat == beat {
		return // not a new renewal: the same record was stored again
	}
	m.seen[name] = &member{beat: beat, at: now, leaving: leaving}
	if name == m.self {
		m.heard.note(now, m.gap())
		m.asOf = m.began.Add(time.Duration(beat - 1))
	}
	m.reassign(now)
}

// checkLeases reassigns. The caller deletes the leases of gone nodes.
func (m *Members) checkLeases(now time.Time) (gone []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reassign(now)
	if m.isPartitioned(now) {
		return nil
	}
	for name, is := range m.seen {
		if name != m.self && m.silence(now, is) > removeAfter*m.stale {
			delete(m.seen, name)
			gone = append(gone, name)
		}
	}
	return gone
}

// isPartitioned reports whether this node has no contact with the store.
func (m *Members) isPartitioned(now time.Time) bool {
	return m.heard.last.IsZero() || now.Sub(m.heard.last) > m.stale
}

// silence returns for how long no renewal of a member has arrived, not counting the time before the
// feed last resumed.
func (m *Members) silence(now time.Time, is *member) time.Duration {
	if m.heard.resumed.After(is.at) {
		return now.Sub(m.heard.resumed)
	}
	return now.Sub(is.at)
}

// isAlive reports whether a node may be alive. It is dead without a renewal for a lease time. After an
// outage of the store, two thirds of it are enough, from stored.resumed to asOf, because every live node
// renews its lease as soon as the store is back. asOf is limited to stored.last: a renewal may be delivered
// before its acknowledgement ends another outage.
func (m *Members) isAlive(now time.Time, is *member) bool {
	asOf := m.asOf
	if asOf.After(m.stored.last) {
		asOf = m.stored.last
	}
	if m.stored.resumed.After(is.at) && asOf.Sub(m.stored.resumed) > m.stale*2/renewalsPerLease {
		return false
	}
	return m.silence(now, is) <= m.stale
}

func (m *Members) reassign(now time.Time) {
	if m.isPartitioned(now) {
		return
	}
	var members []string
	for name, is := range m.seen {
		if !is.leaving && m.isAlive(now, is) {
			members = append(members, name)
		}
	}
	m.assign(members)
}

func (m *Members) assign(members []string) {
	for p := range m.partitions {
		h := &m.partitions[p]
		ours := ownerOf(p, members) == m.self
		switch {
		case ours && h.ctx == nil:
			h.ctx, h.cancel = context.WithCancel(context.Background())
		case !ours && h.ctx != nil:
			h.cancel()
			*h = assigned{}
		}
	}
}

func (m *Members) assignment(p int) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.partitions[p].ctx
}

// Free reports whether a partition may be taken from its owner: this node, a dead one, or none (""). The
// owner may be alive while this node has lost contact with the store.
func (m *Members) Free(holder string) bool { return m.free(time.Now(), holder) }

func (m *Members) free(now time.Time, holder string) bool {
	if holder == "" || holder == m.self {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.seen[holder]
	if is == nil {
		// The lease of holder may not have been delivered yet. Like a node that leaves, it is given no
		// partitions until then.
		is = &member{at: now, leaving: true}
		m.seen[holder] = is
	}
	return !m.isPartitioned(now) && !m.isAlive(now, is)
}

func (m *Members) Count() (members, partitions int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, is := range m.seen {
		if !is.leaving && m.isAlive(now, is) {
			members++
		}
	}
	for _, h := range m.partitions {
		if h.ctx != nil {
			partitions++
		}
	}
	return members, partitions
}
