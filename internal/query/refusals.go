package query

import (
	"net/netip"
	"sync"
	"time"

	"example.org/carstate/internal/netguard"
)

// Within refusedWindow, up to refusedTokens tokens from one address are refused with 401, and
// further ones with 429. A valid token within its rate is answered even from such an address, so no
// client can lock out another one behind the same address.
const (
	refusedTokens = 100
	refusedWindow = time.Minute
)

// Refused tokens are remembered for up to maxRefusalLogs addresses. An address takes about 850
// bytes. At the maximum, a new address takes the place of another one: of searchedLogs random
// addresses, the one from which no token was refused for the longest time.
const (
	maxRefusalLogs = 4096
	searchedLogs   = 8
)

// refusals remembers the addresses whose tokens were refused recently. Valid requests stay fast: a
// request with a valid token takes the lock only if the token has a rate limit, and the request
// fails or exceeds that limit.
type refusals struct {
	mu   sync.Mutex // guards logs
	logs map[netip.Prefix]*refusalLog
}

// refusalLog holds the times of the last refused tokens from one client (see [netguard.Client]).
type refusalLog struct {
	last int // the index of the newest time; the next one is the oldest
	at   [refusedTokens]time.Duration
}

func newRefusals() *refusals { return &refusals{logs: make(map[netip.Prefix]*refusalLog)} }

// noteRefusal records that a token from the address is refused at the time now, and returns 0. If
// refusedTokens tokens from the address were already refused within refusedWindow, noteRefusal
// records nothing and returns how long the address must wait. Because nothing is recorded during
// the wait, the wait never becomes longer than the client was told at first.
func (r *refusals) noteRefusal(a netip.Addr, now time.Time) (wait time.Duration) {
	at := time.Duration(now.UnixNano())
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.logOf(netguard.Client(a))
	if wait = l.wait(at); wait == 0 {
		l.last = (l.last + 1) % refusedTokens
		l.at[l.last] = at
	}
	return wait
}

// waitOf returns how long the address must wait, like noteRefusal, but records nothing.
func (r *refusals) waitOf(a netip.Addr, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.logs[netguard.Client(a)]; l != nil {
		return l.wait(time.Duration(now.UnixNano()))
	}
	return 0
}

// wait returns how long to wait before one more refused token gets 401 and not 429: until the
// oldest recorded refusal leaves the window, or 0. at is the time since the Unix epoch.
func (l *refusalLog) wait(at time.Duration) time.Duration {
	oldest := l.at[(l.last+1)%refusedTokens]
	// A negative age means that the clock was set back. The recorded times are then useless.
	if age := at - oldest; oldest != 0 && age >= 0 && age < refusedWindow {
		return refusedWindow - age
	}
	return 0
}

// logOf returns the log of from, or adds an empty one (see maxRefusalLogs). The caller holds mu.
func (r *refusals) logOf(from netip.Prefix) *refusalLog {
	l := r.logs[from]
	if l != nil {
		return l
	}
	if len(r.logs) == maxRefusalLogs {
		var victim netip.Prefix
		searched := 0
		for other, l := range r.logs { // in random order
			if oldest := r.logs[victim]; oldest == nil || l.at[l.last] < oldest.at[oldest.last] {
				victim = other
			}
			if searched++; searched == searchedLogs {
				break
			}
		}
		delete(r.logs, victim)
	}
	l = new(refusalLog)
	r.logs[from] = l
	return l
}
