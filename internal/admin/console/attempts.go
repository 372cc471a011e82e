package console

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/netguard"
)

// The limits on wrong keys: of one client (see [netguard.Client]), and of all. A right key is
// always accepted, so that nobody can lock the operators out. A key has 178 random bits; the limits
// only slow down floods of the login.
var (
	wrongFromOne = access.Rate{Calls: 10, Window: time.Minute}
	wrongInAll   = access.Rate{Calls: 60, Window: time.Minute}
)

// attempts holds the budgets of wrong keys: all for all addresses together, and one for single
// clients. A hash of the client selects one of 1,024 budgets, so that the memory is bounded.
type attempts struct {
	seed maphash.Seed
	one  [1024]access.Budget
	all  access.Budget
}

// wait counts a wrong key, and returns the wait until the next attempt: 0 below both limits.
func (a *attempts) wait(r *http.Request, now time.Time) time.Duration {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	budget := &a.one[maphash.Comparable(a.seed, netguard.Client(from.Addr()))%uint64(len(a.one))]
	if _, next, ok := budget.Take(wrongFromOne, now); !ok {
		return next
	}
	_, next, ok := a.all.Take(wrongInAll, now)
	if ok {
		return 0
	}
	return next
}
