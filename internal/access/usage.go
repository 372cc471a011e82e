package access

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Outcome is the result of a call with a known token. Its numeric values are stored, so new
// outcomes must be added at the end.
type Outcome uint8

// The outcomes. InsufficientScope and all outcomes after it mean that the call was refused.
const (
	Answered Outcome = iota
	Unknown
	Stale
	NotDriving
	InsufficientScope
	RateLimited
	Unavailable
	Expired
	Revoked
	Replaced
	InvalidRequest
	outcomeCount
)

// String returns the name of the outcome.
func (o Outcome) String() string {
	return [...]string{
		"answered", "unknown", "stale", "not_driving", "insufficient_scope",
		"rate_limited", "unavailable", "expired", "revoked", "replaced",
		"invalid_request",
	}[o]
}

// Known reports whether o is one of the outcomes of this version.
func (o Outcome) Known() bool { return o < outcomeCount }

func (o Outcome) refused() bool { return o >= InsufficientScope }

func (o Outcome) invalidSecret() bool { return o >= Expired && o <= Replaced }

// Calls holds numbers of calls, by operation (in the order of [Operations.Names]) and outcome.
type Calls [2][outcomeCount]int64

func (c *Calls) add(other *Calls) {
	for op := range c {
		for o := range c[op] {
			c[op][o] += other[op][o]
		}
	}
}

// DayCalls holds the calls of one day.
type DayCalls struct {
	Day   int64 // days since 1 January 1970, UTC
	Calls Calls
}

// UsageDays is the number of days for which calls are kept, including today.
const UsageDays = 30

// maxFutureDays is the maximum number of days after today whose calls are kept. If there are more,
// the days nearest to today are kept. Days after today are not shown, because they usually come
// from a node whose clock was fast. But they are kept, because perhaps the clock of this node is
// slow, and the clock of the other node is right.
const maxFutureDays = 7

// DayOf returns the day of t, as the number of days since 1 January 1970 in UTC.
func DayOf(t time.Time) int64 { return t.Unix() / secondsPerDay }

const secondsPerDay = 24 * 60 * 60

// Usage holds the counters of a token.
type Usage struct {
	Days        []DayCalls // oldest first, each day at most once
	LastUsed    time.Time  // in whole minutes; zero: never
	LastRefused time.Time  // in whole seconds; zero: never
	Reason      Outcome    // of the last refusal
}

// Since returns the sum of the calls on the given day and on all later days.
func (u *Usage) Since(day int64) (sum Calls) {
	for i := range u.Days {
		if u.Days[i].Day >= day {
			sum.add(&u.Days[i].Calls)
		}
	}
	return sum
}

// Merge adds other, the usage that another node has counted. It sums the calls of each day, and
// keeps the later time of use and the later refusal.
func (u *Usage) Merge(other Usage) {
	for i := range other.Days {
		u.addDay(other.Days[i].Day, &other.Days[i].Calls)
	}
	if other.LastUsed.After(u.LastUsed) {
		u.LastUsed = other.LastUsed
	}
	if other.LastRefused.After(u.LastRefused) {
		u.LastRefused, u.Reason = other.LastRefused, other.Reason
	}
}

func byDay(d DayCalls, day int64) int { return cmp.Compare(d.Day, day) }

func (u *Usage) addDay(day int64, c *Calls) {
	i, found := slices.BinarySearchFunc(u.Days, day, byDay)
	if !found {
		u.Days = slices.Insert(u.Days, i, DayCalls{Day: day})
	}
	u.Days[i].Calls.add(c)
}

// Trim drops days: those that are older than the last [UsageDays] days, and all future days except
// the nearest maxFutureDays.
func (u *Usage) Trim(now time.Time) {
	first := DayOf(now) - UsageDays + 1
	u.Days = slices.DeleteFunc(u.Days, func(d DayCalls) bool { return d.Day < first })
	u.Days = u.Days[:min(len(u.Days), u.pastDays(now)+maxFutureDays)]
}

// pastDays returns how many of u.Days are not after the day of now.
func (u *Usage) pastDays(now time.Time) int {
	n, _ := slices.BinarySearchFunc(u.Days, DayOf(now)+1, byDay)
	return n
}

// upTo returns a copy of u in which LastUsed is zero if it was later than the given day, and
// LastRefused and Reason are zero if LastRefused was later than the day. Such a time comes from a
// clock that was fast. If the time were kept, every node would show it in place of the true last
// use or refusal, until that time has come.
func (u Usage) upTo(day int64) Usage {
	if DayOf(u.LastUsed) > day {
		u.LastUsed = time.Time{}
	}
	if DayOf(u.LastRefused) > day {
		u.LastRefused, u.Reason = time.Time{}, 0
	}
	return u
}

// usage holds what a node has counted for a token or a source since the node started. Usage belongs
// to the credential's name, so it is kept when the record changes.
type usage struct {
	Budget      Budget
	lastUsed    atomic.Int64               // Unix seconds
	lastRefused atomic.Int64               // Unix seconds and reason, packed by packRefusal
	today       atomic.Pointer[dayCounter] // of the day of the latest call

	mu       sync.Mutex      // guards activity and days
	days     []*dayCounter   // this process's counters, oldest day first, each day at most once
	activity *SourceActivity // of a source, without LastSeen; nil until something is counted
	claimed  Claims          // no names, because a vehicle may be forgotten

	// stored is the usage that each node has stored, by the node's name. It does not contain the
	// counts of this process. Credentials.mu guards it.
	stored map[string]Usage
}

// dayCounter counts this process's calls of one day.
type dayCounter struct {
	day   int64
	calls [2][outcomeCount]atomic.Int64
}

// lastUsedStep is the resolution of the time of the last use, in seconds. A finer resolution would
// need a write to shared memory for each query, although the time is only displayed.
const lastUsedStep = 60

// Count counts a call at time now. op must be exactly one operation. It takes a lock, and
// may allocate, only if the latest call was on another day.
func (u *usage) Count(op Operations, o Outcome, now time.Time) {
	at := now.Unix()
	i := 0
	if op == ThrottleSystem {
		i = 1
	}
	u.counterOf(at / secondsPerDay).calls[i][o].Add(1)
	if o.refused() {
		noteRefusal(&u.lastRefused, at, o)
	}
	if last := u.lastUsed.Load(); !o.invalidSecret() && (at-last >= lastUsedStep || last >= dayAfter(at)) {
		u.lastUsed.Store(at - at%lastUsedStep)
	}
}

// counterOf returns the counter of a day, adding it if there is none. If the day is not that of the
// latest call, counterOf keeps only the nearest maxFutureDays of the days after it; if more than
// maxHeldDays days are then left, it drops the oldest.
func (u *usage) counterOf(day int64) *dayCounter {
	if c := u.today.Load(); c != nil && c.day == day {
		return c
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	i, found := slices.BinarySearchFunc(u.days, day, func(c *dayCounter, day int64) int { return cmp.Compare(c.day, day) })
	if !found {
		u.days = slices.Insert(u.days, i, &dayCounter{day: day})
	}
	c := u.days[i]
	u.days = u.days[:min(len(u.days), i+1+maxFutureDays)]
	u.days = slices.Delete(u.days, 0, max(0, len(u.days)-maxHeldDays))
	u.today.Store(c)
	return c
}

// maxHeldDays is the maximum number of days for which a process holds counters; maxFutureDays+1 of
// them are for days that a fast clock adds, so that such days do not displace the others.
const maxHeldDays = UsageDays + 2*maxFutureDays + 1

// counters returns the counters of this process, oldest day first.
func (u *usage) counters() []*dayCounter {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.days)
}

func (u *usage) counted() (sum int64) {
	for _, c := range u.counters() {
		for op := range c.calls {
			for o := range c.calls[op] {
				sum += c.calls[op][o].Load()
			}
		}
	}
	return sum
}

// running returns the usage that this process knows of. Its calls are those that this process has
// counted. Its times of the latest use and the latest refusal can also come from another node.
func (u *usage) running() (r Usage) {
	for _, c := range u.counters() {
		var calls Calls
		for op := range calls {
			for o := range calls[op] {
				calls[op][o] = c.calls[op][o].Load()
			}
		}
		r.addDay(c.day, &calls)
	}
	r.LastUsed = u.latestUse()
	r.LastRefused, r.Reason = unpackRefusal(u.lastRefused.Load())
	return r
}

// LastUsed returns when the token was last used on any node, as far as this node knows, in whole
// minutes. It returns the zero time if the token was never used, or if a node whose clock was fast
// has recorded a use on a day after now.
func (u *usage) LastUsed(now time.Time) time.Time {
	return Usage{LastUsed: u.latestUse()}.upTo(DayOf(now)).LastUsed
}

func (u *usage) latestUse() time.Time {
	if s := u.lastUsed.Load(); s != 0 {
		return time.Unix(s, 0).UTC()
	}
	return time.Time{}
}

// packRefusal returns the time, in Unix seconds, and the reason as one number: at × 256 + why. A
// later time gives a larger number. The number 0 stands for no refusal.
func packRefusal(at int64, why Outcome) int64 { return at<<8 | int64(why) }

func unpackRefusal(n int64) (time.Time, Outcome) {
	if n == 0 {
		return time.Time{}, 0
	}
	return time.Unix(n>>8, 0).UTC(), Outcome(n & 0xff)
}

// dayAfter returns the start of the day after at. Both times are in Unix seconds.
func dayAfter(at int64) int64 { return (at/secondsPerDay + 1) * secondsPerDay }

// noteRefusal stores the time and the reason of a refusal in v, unless v already has a refusal of a
// later second on the same day. A stored refusal on a later day is replaced: it was recorded while
// the clock was fast, and would otherwise hide all refusals until that day.
func noteRefusal(v *atomic.Int64, at int64, why Outcome) {
	n, next, ahead := packRefusal(at, why), packRefusal(at+1, 0), packRefusal(dayAfter(at), 0)
	for {
		old := v.Load()
		if old == n || next <= old && old < ahead || v.CompareAndSwap(old, n) {
			return
		}
	}
}

func storeMax(v *atomic.Int64, n int64) {
	for {
		old := v.Load()
		if old >= n || v.CompareAndSwap(old, n) {
			return
		}
	}
}
