package query

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"carstate/internal/netguard"
)

// Within refusedWindow, up to refusedTokens tokens from one address are refused with 401, and
// further ones with 429. A valid token within its rate is answered even from such an address, so no
// client can lock out another one behind the same address.
const (
	refusedTokens = 100
	refusedWindow = time.Minute
)

// Refused tokens are remembered for a limited number of addresses: a hash assigns each address to
// one of refusalSets sets, and a set holds up to refusalWays addresses. An address takes about 850
// bytes. If the set of a new address is full, the new address takes the place of the one in the set
// from which no token was refused for the longest time.
const (
	refusalSets = 512 // a power of two
	refusalWays = 8
)

// refusals remembers the addresses whose tokens were refused recently. Valid requests stay fast: a
// request with a valid token takes a lock of refusals only if the token has a rate limit, and the
// request fails or exceeds that limit.
type refusals struct {
	seed maphash.Seed // random, so that a client cannot choose addresses of one set
	sets [refusalSets]refusalSet
}

type refusalSet struct {
	mu   sync.Mutex // guards logs
	logs [refusalWays]*refusalLog
}

// refusalLog holds the times of the last refused tokens from one client (see [netguard.Client]).
type refusalLog struct {
	from netip.Prefix
	last int // the index of the newest time; the next one is the oldest
	at   [refusedTokens]time.Duration
}

func newRefusals() *refusals { return &refusals{seed: maphash.MakeSeed()} }

// noteRefusal records that a token from the address is refused at the time now, and returns 0. If
// refusedTokens tokens from the address were already refused within refusedWindow, noteRefusal
// records nothing and returns how long the address must wait. Because nothing is recorded during
// the wait, the wait never becomes longer than the client was told at first.
func (r *refusals) noteRefusal(a netip.Addr, now time.Time) (wait time.Duration) {
	from, at := netguard.Client(a), time.Duration(now.UnixNano())
	s := r.setOf(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logOf(from)
	if wait = l.wait(at); wait == 0 {
		l.last = (l.last + 1) % refusedTokens
		l.at[l.last] = at
	}
	return wait
}

// waitOf returns how long the address must wait, like noteRefusal, but records nothing.
func (r *refusals) waitOf(a netip.Addr, now time.Time) time.Duration {
	from := netguard.Client(a)
	s := r.setOf(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		if l != nil && l.from == from {
			return l.wait(time.Duration(now.UnixNano()))
		}
	}
	return 0
}

func (r *refusals) setOf(from netip.Prefix) *refusalSet {
	return &r.sets[maphash.Comparable(r.seed, from)%refusalSets]
}

// wait returns how long an address must wait before one more refused token gets 401 and not 429.
// That is the time until the oldest recorded refusal leaves the window, or 0 if one more refusal is
// allowed now. at is the present time, as the time since the Unix epoch.
func (l *refusalLog) wait(at time.Duration) time.Duration {
	oldest := l.at[(l.last+1)%refusedTokens]
	// A negative age means that the clock was set back. The recorded times are then useless.
	if age := at - oldest; oldest != 0 && age >= 0 && age < refusedWindow {
		return refusedWindow - age
	}
	return 0
}

// logOf returns the log of the address or prefix from. If s has none, logOf adds an empty log. If s
// is full, the new log replaces the one whose newest time is the earliest. The caller holds mu.
func (s *refusalSet) logOf(from netip.Prefix) *refusalLog {
	victim := 0
	for i, l := range s.logs {
		switch {
		case l == nil:
			s.logs[i] = &refusalLog{from: from}
			return s.logs[i]
		case l.from == from:
			return l
		case l.at[l.last] < s.logs[victim].at[s.logs[victim].last]:
			victim = i
		}
	}
	*s.logs[victim] = refusalLog{from: from}
	return s.logs[victim]
}
