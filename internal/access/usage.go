package access

import (
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/vehicle"
)

// Outcome is stored: add new values at the end.
type Outcome uint8

// From InsufficientScope on, the call was refused.
const (
	Answered                  = Outcome(vehicle.Answered)
	Unknown                   = Outcome(vehicle.Unknown)
	Stale                     = Outcome(vehicle.Stale)
	NotDriving                = Outcome(vehicle.NotDriving)
	InsufficientScope Outcome = iota
	RateLimited
	Unavailable
	Expired
	Revoked
	Replaced
	InvalidRequest
	Outcomes
)

func (o Outcome) String() string {
	return [...]string{
		"answered", "unknown", "stale", "not_driving", "insufficient_scope",
		"rate_limited", "unavailable", "expired", "revoked", "replaced",
		"invalid_request",
	}[o]
}

func (o Outcome) Known() bool { return o < Outcomes }

func (o Outcome) refused() bool { return o >= InsufficientScope }

func (o Outcome) InvalidSecret() bool { return o >= Expired && o <= Replaced }

type Usage struct {
	Calls       int64     `json:"calls,omitzero"` // including refused ones
	Refusals    int64     `json:"refusals,omitzero"`
	LastUsed    time.Time `json:"last_used,omitzero"`    // in whole minutes; zero: never
	LastRefused time.Time `json:"last_refused,omitzero"` // in whole seconds; zero: never
	Reason      Outcome   `json:"reason,omitzero"`       // of the last refusal
}

// Plus leaves out times more than maxSkew after now: a fast clock noted them, and they would hide
// all later ones.
func (u Usage) Plus(other Usage, now time.Time) Usage {
	sum := Usage{Calls: u.Calls + other.Calls, Refusals: u.Refusals + other.Refusals}
	last := now.Add(maxSkew)
	for _, part := range []Usage{u, other} {
		if part.LastUsed.After(sum.LastUsed) && !part.LastUsed.After(last) {
			sum.LastUsed = part.LastUsed
		}
		if part.LastRefused.After(sum.LastRefused) && !part.LastRefused.After(last) {
			sum.LastRefused, sum.Reason = part.LastRefused, part.Reason
		}
	}
	return sum
}

// usage belongs to a credential's name, so it is kept when the record changes.
type usage struct {
	Budget          Budget
	calls, refusals atomic.Int64  // not contained in stored
	lastUsed        atomic.Int64  // Unix seconds
	lastRefused     atomic.Int64  // Unix seconds
	reason          atomic.Uint32 // an Outcome, of lastRefused or a moment later

	mu       sync.Mutex      // guards the fields below
	activity *SourceActivity // of a source, without LastSeen; may be nil
	claimed  Claims          // hashes, because a forgotten vehicle's vid must not stay
	stored   Usage           // the sum of all nodes
	sent     Usage           // what the latest write adds to stored if it succeeds
}

// in seconds; a finer step would need a write to shared memory for each query
const lastUsedStep = 60

// Count takes no lock and does not allocate. now replaces even a later time, which a fast clock must
// have noted.
func (u *usage) Count(o Outcome, now time.Time) {
	at := now.Unix()
	u.calls.Add(1)
	if o.refused() {
		u.refusals.Add(1)
		u.reason.Store(uint32(o))
		u.lastRefused.Store(at)
	}
	if last := u.lastUsed.Load(); !o.InvalidSecret() && (at < last || at-last >= lastUsedStep) {
		u.lastUsed.Store(at - at%lastUsedStep)
	}
}

// The caller of withCounted holds mu.
func (u *usage) withCounted(stored Usage, now time.Time) Usage {
	since := Usage{Calls: u.calls.Load(), Refusals: u.refusals.Load(), LastUsed: u.latestUse()}
	if n := u.lastRefused.Load(); n != 0 {
		since.LastRefused, since.Reason = time.Unix(n, 0).UTC(), Outcome(u.reason.Load())
	}
	return stored.Plus(since, now)
}

func (u *usage) Usage(now time.Time) Usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.withCounted(u.stored, now)
}

func (u *usage) latestUse() time.Time {
	if s := u.lastUsed.Load(); s != 0 {
		return time.Unix(s, 0).UTC()
	}
	return time.Time{}
}

// NoteUsage sets the stored usage. If mine, this process stored it, by [Credentials.UsageToStore].
func (t *Credentials) NoteUsage(id string, stored Usage, mine bool) {
	u := t.usageOf(id)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stored = stored; mine {
		u.calls.Add(-u.sent.Calls)
		u.refusals.Add(-u.sent.Refusals)
		u.sent = Usage{}
	}
}

// UsageToStore returns stored plus what this process has counted since.
func (t *Credentials) UsageToStore(id string, stored Usage, now time.Time) Usage {
	u := t.usageOf(id)
	u.mu.Lock()
	defer u.mu.Unlock()
	next := u.withCounted(stored, now)
	u.sent = Usage{Calls: next.Calls - stored.Calls, Refusals: next.Refusals - stored.Refusals}
	return next
}

func (t *Credentials) Unstored() (ids []string) {
	t.lock()
	defer t.mu.Unlock()
	for id, u := range t.usages {
		if u.calls.Load() > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
