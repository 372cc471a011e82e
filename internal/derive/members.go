package derive

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"carstate/internal/lograte"
	"carstate/internal/periodic"
)

// Leases stores the leases by which nodes with the role derive know of each other.
type Leases interface {
	// Stale returns the lease time: other nodes take over from a node that has not renewed for
	// so long.
	Stale() time.Duration
	// Renew stores this node's lease. beat increases with each renewal.
	Renew(ctx context.Context, name string, beat uint64, leaving bool) error
	// Follow calls put for every stored lease and then for every renewal, until the context
	// ends.
	Follow(ctx context.Context, put func(name string, beat uint64, leaving bool)) error
	// Remove deletes a lease.
	Remove(ctx context.Context, name string) error
}

// Members assigns the partitions to the nodes with the role derive. Every node computes the
// assignment itself, by its own clock, from the leases it has received. If two nodes disagree
// for a moment, the partition's cursor decides: it names one owner, and a node takes a
// partition only if its owner is dead or has released it.
type Members struct {
	self   string
	leases Leases
	stale  time.Duration
	log    *slog.Logger

	mu   sync.Mutex // guards all fields below except unrenewed
	seen map[string]*member
	// lastHeard is when the feed last delivered our own lease. Without a recent delivery, this node
	// is the one that is disconnected, and it must not consider any other node dead.
	lastHeard time.Time
	// reconnectedAt is when the feed last resumed after a gap. Silence of other nodes before that is
	// ignored.
	reconnectedAt time.Time
	// The next four fields tell how far the feed has come, however late it is. The feed
	// delivers renewals in the order in which they were stored, so the node's own renewals mark
	// positions in it.
	//   - asOf: start of the newest own renewal that the feed has delivered.
	//   - pending: start times of own renewals that are stored and not delivered yet, by beat.
	//   - lastStored: when an own renewal was last acknowledged.
	//   - resumedAt: when one was first acknowledged after a gap.
	asOf                  time.Time
	pending               map[uint64]time.Time
	lastStored, resumedAt time.Time
	unrenewed             lograte.Warning

	partitions []assigned
	changed    chan struct{} // closed when the assignment changes
}

// member is a node as this node sees it.
type member struct {
	beat    uint64
	at      time.Time // when its lease was last seen to change
	leaving bool
	unseen  bool // it owns a partition, but none of its leases was received yet
}

// assigned is the assignment of one partition.
type assigned struct {
	ctx    context.Context // ends when it is assigned to another node; nil: not assigned to this one
	cancel context.CancelFunc
}

// NewMembers returns the members as seen by this node. self must be a name that no other
// process ever had. [Members.Run] must run.
func NewMembers(self string, partitions int, l Leases, log *slog.Logger) *Members {
	return &Members{
		self: self, leases: l, stale: l.Stale(), log: log,
		seen: make(map[string]*member), pending: make(map[uint64]time.Time),
		partitions: make([]assigned, partitions), changed: make(chan struct{}),
	}
}

const (
	// renewalsPerLease is the number of renewals in one lease time.
	renewalsPerLease = 3
	// checksPerLease is the number of checks for stale leases in one lease time.
	checksPerLease = 24
	// removeAfter is after how many lease times the lease of a dead node is deleted.
	removeAfter = 100
)

// Run renews this node's lease and follows the leases of others until the context ends. Then it
// stores a last lease that says that this node leaves.
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

// leave unassigns all partitions.
func (m *Members) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.partitions {
		if h := &m.partitions[p]; h.ctx != nil {
			h.cancel()
			*h = assigned{}
		}
	}
}

// renew renews our lease until the context ends.
func (m *Members) renew(ctx context.Context) {
	every := m.stale / renewalsPerLease
	rest := time.NewTimer(every)
	defer rest.Stop()
	for beat := uint64(1); ; beat++ {
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, every)
		err := m.leases.Renew(try, m.self, beat, false)
		cancel()
		switch {
		case err == nil:
			m.recordRenewal(time.Now(), began, beat)
			rest.Reset(every - time.Since(began))
		case ctx.Err() == nil:
			m.unrenewed.Log(m.log, "cannot renew this node's lease; will retry", "error", err)
			rest.Reset(heldPoll) // soon, because other nodes consider this one dead without it
		}
		select {
		case <-rest.C:
			continue
		case <-ctx.Done():
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer cancel()
		if err := m.leases.Renew(last, m.self, beat+1, true); err != nil {
			m.log.Warn("cannot announce to the other nodes that this one leaves", "error", err)
		}
		return
	}
}

// leaveWithin bounds what an ending node does for the others.
const leaveWithin = 500 * time.Millisecond

// recordRenewal records that a renewal of ours is stored.
func (m *Members) recordRenewal(now, began time.Time, beat uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastStored.IsZero() || now.Sub(m.lastStored) > 2*m.stale/renewalsPerLease {
		m.resumedAt = now
	}
	m.lastStored = now
	m.pending[beat] = began
	m.updateAsOf(m.seen[m.self])
}

// updateAsOf updates asOf. own is our own lease as the feed delivered it last.
func (m *Members) updateAsOf(own *member) {
	for beat, began := range m.pending {
		if own != nil && beat <= own.beat {
			if began.After(m.asOf) {
				m.asOf = began
			}
			delete(m.pending, beat)
		}
	}
}

// recordLease records a delivered lease.
func (m *Members) recordLease(now time.Time, name string, beat uint64, leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.seen[name]
	switch {
	case is == nil:
		m.seen[name] = &member{beat: beat, at: now, leaving: leaving}
	case is.unseen || is.beat != beat:
		*is = member{beat: beat, at: now, leaving: leaving}
	default:
		return // the same renewal, stored again
	}
	if name == m.self {
		if m.lastHeard.IsZero() || now.Sub(m.lastHeard) > 2*m.stale/renewalsPerLease {
			m.reconnectedAt = now
		}
		m.lastHeard = now
		m.updateAsOf(m.seen[name])
	}
	m.reassign(now)
}

// checkLeases checks for stale leases, and returns the nodes that are dead for so long that their
// leases are to be deleted.
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

// isPartitioned reports whether this node has lost contact with the store, or never had it.
func (m *Members) isPartitioned(now time.Time) bool {
	return m.lastHeard.IsZero() || now.Sub(m.lastHeard) > m.stale
}

// silence returns for how long a node has not been heard, although its renewals could have
// arrived.
func (m *Members) silence(now time.Time, is *member) time.Duration {
	if m.reconnectedAt.After(is.at) {
		return now.Sub(m.reconnectedAt)
	}
	return now.Sub(is.at)
}

// isAlive reports whether a node may be alive. After an outage of the store, every live node
// renews its lease at once, so a node that has not renewed within two thirds of a lease time
// after the store came back is dead. That time is measured by the order of the feed, which may
// be late itself.
func (m *Members) isAlive(now time.Time, is *member) bool {
	if m.resumedAt.After(is.at) && m.asOf.Sub(m.resumedAt) > m.stale*2/renewalsPerLease {
		return false
	}
	return m.silence(now, is) <= m.stale
}

// reassign assigns the partitions to the live members. It changes nothing while this node is
// disconnected.
func (m *Members) reassign(now time.Time) {
	if m.isPartitioned(now) {
		return
	}
	var members []string
	for name, is := range m.seen {
		if !is.unseen && !is.leaving && m.isAlive(now, is) {
			members = append(members, name)
		}
	}
	changed := false
	for p := range m.partitions {
		h := &m.partitions[p]
		ours := ownerOf(p, members) == m.self
		switch {
		case ours && h.ctx == nil:
			h.ctx, h.cancel = context.WithCancel(context.Background())
		case !ours && h.ctx != nil:
			h.cancel()
			*h = assigned{}
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

// assignment returns a context that ends when partition p is assigned to another node, or nil if it
// is not assigned to this one.
func (m *Members) assignment(p int) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.partitions[p].ctx
}

// await waits until partition p is assigned to this node, and returns a context that ends when
// it is assigned to another.
func (m *Members) await(ctx context.Context, p int) (context.Context, error) {
	for {
		m.mu.Lock()
		ours, changed := m.partitions[p].ctx, m.changed
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

// Free reports whether a partition may be taken from holder: it is "" (no owner) or a dead node.
func (m *Members) Free(holder string) bool { return m.free(time.Now(), holder) }

func (m *Members) free(now time.Time, holder string) bool {
	if holder == "" || holder == m.self {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.seen[holder]
	if is == nil {
		// Its lease may not have been delivered yet.
		is = &member{at: now, unseen: true}
		m.seen[holder] = is
	}
	return !m.isPartitioned(now) && !m.isAlive(now, is)
}

// Count returns the number of live members, as far as this node knows, and the number of
// partitions that are assigned to this node.
func (m *Members) Count() (members, partitions int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, is := range m.seen {
		if !is.unseen && !is.leaving && m.isAlive(now, is) {
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
