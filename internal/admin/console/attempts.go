package console

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"time"

	"carstate/internal/access"
	"carstate/internal/netguard"
)

// The limits on the rate of wrong keys: from one client (see [netguard.Client]), and from all
// addresses together. A right key is always accepted, so that an attacker cannot lock the operators
// out. A key has 178 random bits, so it cannot be guessed, whatever the rate. The limits only slow
// down callers that mistype the key or flood the login.
var (
	wrongFromOne = access.Rate{Calls: 10, Window: time.Minute}
	wrongInAll   = access.Rate{Calls: 60, Window: time.Minute}
)

// attempts holds two kinds of budgets: how many more wrong keys each of the two limits permits at
// present. The field all is the budget for all addresses together. The field one holds the budgets
// for single clients: a hash of the client selects one of 1,024 budgets, so that the memory is
// bounded.
type attempts struct {
	seed maphash.Seed
	one  [1024]access.Budget
	all  access.Budget
}

// wait counts a wrong key, and returns how long the caller has to wait before the next attempt. If
// no limit is exceeded, it returns zero.
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
