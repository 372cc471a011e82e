package derive

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"carstate/internal/lograte"
	"carstate/internal/periodic"
)

// Leases are where the nodes that fold learn of each other.
type Leases interface {
	// Stale is how long a node may be silent before others take what it has.
	Stale() time.Duration
	// Renew stores this node's lease. beat grows each time.
	Renew(ctx context.Context, name string, beat uint64, leaving bool) error
	// Follow calls put for every lease and every renewal until the context ends.
	Follow(ctx context.Context, put func(name string, beat uint64, leaving bool)) error
	// Remove removes a lease.
	Remove(ctx context.Context, name string) error
}

// Members divides the partitions among the nodes that fold. Every node decides
// for itself, by its own clock, from what it has seen of the others. Where two of
// them disagree for a moment, the partition's cursor decides: it has one owner,
// and only a partition whose owner is gone or has released it is taken.
type Members struct {
	self   string
	leases Leases
	stale  time.Duration
	log    *slog.Logger

	mu   sync.Mutex // guards what follows
	seen map[string]*member
	// heard is when our own lease was seen last. While it is not, it is us who
	// are cut off, and nobody else counts as gone.
	heard time.Time
	// since is when we were last cut off. Who was silent then may not have been.
	since time.Time
	// The feed brings everything in the order in which it was stored, so our own
	// leases in it tell how far it got, however late it comes: asOf is when the
	// newest that came was begun, and begun is when those after it were. stored
	// is when one was answered last, resumed when one was after a time of none.
	asOf            time.Time
	begun           map[uint64]time.Time
	stored, resumed time.Time
	unrenewed       lograte.Warning

	mine    []hold
	changed chan struct{} // closed when mine changes
}

// member is what is known of a node.
type member struct {
	beat    uint64
	at      time.Time // when it was seen to change
	leaving bool
	unseen  bool // it owns a partition, and no lease of it was seen yet
}

// hold is one partition as far as it is ours.
type hold struct {
	ours context.Context // ends when it is another's; nil: it is another's
	end  context.CancelFunc
}

// NewMembers returns the members as this node, which goes by a name that no other
// process ever had, sees them. [Members.Run] must run.
func NewMembers(self string, partitions int, l Leases, log *slog.Logger) *Members {
	return &Members{
		self: self, leases: l, stale: l.Stale(), log: log,
		seen: make(map[string]*member), begun: make(map[uint64]time.Time), mine: make([]hold, partitions), changed: make(chan struct{}),
	}
}

const (
	// renewals is how many of its leases a node may fail to renew.
	renewals = 3
	// looks is how many times a lease's time members are looked at.
	looks = 24
	// removeAfter is how many leases' time a node is gone when its lease is
	// removed.
	removeAfter = 100
)

// Run keeps this node's lease and watches the others' until the context ends. It
// then says that this node leaves.
func (m *Members) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer m.leave()
	defer running.Wait()
	running.Go(func() { m.renew(ctx) })
	running.Go(func() {
		for range periodic.Every(ctx, m.stale/looks) {
			for _, name := range m.look(time.Now()) {
				if err := m.leases.Remove(ctx, name); err != nil && ctx.Err() == nil {
					m.log.Warn("the lease of a node that is gone cannot be removed", "member", name, "error", err)
				}
			}
		}
	})
	return m.leases.Follow(ctx, func(name string, beat uint64, leaving bool) {
		m.note(time.Now(), name, beat, leaving)
	})
}

// leave gives all partitions up.
func (m *Members) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.mine {
		if h := &m.mine[p]; h.ours != nil {
			h.end()
			*h = hold{}
		}
	}
}

// renew writes our lease again and again.
func (m *Members) renew(ctx context.Context) {
	every := m.stale / renewals
	rest := time.NewTimer(every)
	defer rest.Stop()
	for beat := uint64(1); ; beat++ {
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, every)
		err := m.leases.Renew(try, m.self, beat, false)
		cancel()
		switch {
		case err == nil:
			m.answered(time.Now(), began, beat)
			rest.Reset(every - time.Since(began))
		case ctx.Err() == nil:
			m.unrenewed.Log(m.log, "this node's lease cannot be renewed", "error", err)
			rest.Reset(heldAgain) // as soon as it can be, the others are to know
		}
		select {
		case <-rest.C:
			continue
		case <-ctx.Done():
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer cancel()
		if err := m.leases.Renew(last, m.self, beat+1, true); err != nil {
			m.log.Warn("the other nodes were not told that this one leaves", "error", err)
		}
		return
	}
}

// leaveWithin bounds what a node that ends does for the others.
const leaveWithin = 500 * time.Millisecond

// answered notes that a lease of ours is stored.
func (m *Members) answered(now, began time.Time, beat uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stored.IsZero() || now.Sub(m.stored) > 2*m.stale/renewals {
		m.resumed = now
	}
	m.stored = now
	m.begun[beat] = began
	m.cameUpTo(m.seen[m.self])
}

// cameUpTo notes how far the feed has come, which has brought a lease of ours.
func (m *Members) cameUpTo(own *member) {
	for beat, began := range m.begun {
		if own != nil && beat <= own.beat {
			if began.After(m.asOf) {
				m.asOf = began
			}
			delete(m.begun, beat)
		}
	}
}

// note takes a lease that was seen.
func (m *Members) note(now time.Time, name string, beat uint64, leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.seen[name]
	switch {
	case is == nil:
		m.seen[name] = &member{beat: beat, at: now, leaving: leaving}
	case is.unseen || is.beat != beat:
		*is = member{beat: beat, at: now, leaving: leaving}
	default:
		return // the same record, stored again
	}
	if name == m.self {
		if m.heard.IsZero() || now.Sub(m.heard) > 2*m.stale/renewals {
			m.since = now
		}
		m.heard = now
		m.cameUpTo(m.seen[name])
	}
	m.divide(now)
}

// look sees who has been silent for too long, and returns those who have been
// gone for so long that they are to be removed.
func (m *Members) look(now time.Time) (gone []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.divide(now)
	if m.cutOff(now) {
		return nil
	}
	for name, is := range m.seen {
		if name != m.self && m.silent(now, is) > removeAfter*m.stale {
			delete(m.seen, name)
			gone = append(gone, name)
		}
	}
	return gone
}

// cutOff reports whether it is us who hear nothing.
func (m *Members) cutOff(now time.Time) bool {
	return m.heard.IsZero() || now.Sub(m.heard) > m.stale
}

// silent is how long a node was not heard of although it could have been.
func (m *Members) silent(now time.Time, is *member) time.Duration {
	if m.since.After(is.at) {
		return now.Sub(m.since)
	}
	return now.Sub(is.at)
}

// lives reports whether a node may still be there. After a time in which no lease
// could be stored, every node that is there stores its own at once: who is not among
// those that were stored in two thirds of a lease's time since is gone. That is told
// by the order of the feed, which may itself be late then.
func (m *Members) lives(now time.Time, is *member) bool {
	if m.resumed.After(is.at) && m.asOf.Sub(m.resumed) > m.stale*2/renewals {
		return false
	}
	return m.silent(now, is) <= m.stale
}

// divide finds out which partitions are ours. What we do not know changes
// nothing.
func (m *Members) divide(now time.Time) {
	if m.cutOff(now) {
		return
	}
	var members []string
	for name, is := range m.seen {
		if !is.unseen && !is.leaving && m.lives(now, is) {
			members = append(members, name)
		}
	}
	changed := false
	for p := range m.mine {
		h := &m.mine[p]
		ours := ownerOf(p, members) == m.self
		switch {
		case ours && h.ours == nil:
			h.ours, h.end = context.WithCancel(context.Background())
		case !ours && h.ours != nil:
			h.end()
			*h = hold{}
		default:
			continue
		}
		changed = true
	}
	if changed {
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// ours is the context of a partition that is to be ours, else nil.
func (m *Members) ours(p int) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mine[p].ours
}

// await waits until partition p is to be ours, and returns a context that ends
// when it is to be another's.
func (m *Members) await(ctx context.Context, p int) (context.Context, error) {
	for {
		m.mu.Lock()
		ours, changed := m.mine[p].ours, m.changed
		m.mu.Unlock()
		if ours != nil {
			return ours, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// Free reports whether a partition may be taken from its holder: it has none, or
// that one is gone.
func (m *Members) Free(holder string) bool { return m.free(time.Now(), holder) }

func (m *Members) free(now time.Time, holder string) bool {
	if holder == "" || holder == m.self {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.seen[holder]
	if is == nil {
		// Its lease may be on its way to us.
		is = &member{at: now, unseen: true}
		m.seen[holder] = is
	}
	return !m.cutOff(now) && !m.lives(now, is)
}

// Count is how many nodes fold, as far as this one knows, and how many partitions
// are to be this one's.
func (m *Members) Count() (members, partitions int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, is := range m.seen {
		if !is.unseen && !is.leaving && m.lives(now, is) {
			members++
		}
	}
	for _, h := range m.mine {
		if h.ours != nil {
			partitions++
		}
	}
	return members, partitions
}
