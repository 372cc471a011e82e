package access

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// Outcome is how a call with a known token ended. The numbers are stored: new
// outcomes go to the end.
type Outcome uint8

// The outcomes. From InsufficientScope on the call was refused.
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

// String names the outcome.
func (o Outcome) String() string {
	return [...]string{
		"answered", "unknown", "stale", "not_driving", "insufficient_scope",
		"rate_limited", "unavailable", "expired", "revoked", "replaced",
		"invalid_request",
	}[o]
}

// Known reports whether there is such an outcome.
func (o Outcome) Known() bool { return o < outcomeCount }

func (o Outcome) refused() bool { return o >= InsufficientScope }

// useless reports whether the secret itself did not count.
func (o Outcome) useless() bool { return o >= Expired && o <= Replaced }

// Calls are numbers of calls, by operation ([Operations.Names] has their order)
// and outcome.
type Calls [2][outcomeCount]int64

func (c *Calls) add(other *Calls) {
	for op := range c {
		for o := range c[op] {
			c[op][o] += other[op][o]
		}
	}
}

// DayCalls are the calls of one day.
type DayCalls struct {
	Day   int64 // since 1 January 1970, UTC
	Calls Calls
}

// UsageDays is for how many days calls are kept, today included.
const UsageDays = 30

// A clock that was ahead leaves days that are yet to come, and they do not show. One
// that is behind makes such days of those that are: so many are kept, the nearest.
const daysToCome = 7

// DayOf numbers the day of a moment as [DayCalls] does.
func DayOf(t time.Time) int64 { return t.Unix() / secondsPerDay }

const secondsPerDay = 24 * 60 * 60

// Usage is what was counted for a token.
type Usage struct {
	Days        []DayCalls // oldest first, no day twice
	LastUsed    time.Time  // to the minute; zero: never
	LastRefused time.Time  // to the second; zero: never
	Reason      Outcome    // of the last refusal
}

// Since adds up the calls from a day on.
func (u *Usage) Since(day int64) (sum Calls) {
	for i := range u.Days {
		if u.Days[i].Day >= day {
			sum.add(&u.Days[i].Calls)
		}
	}
	return sum
}

// Merge adds what another node has counted.
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

func (u *Usage) addDay(day int64, c *Calls) {
	i, found := slices.BinarySearchFunc(u.Days, day, func(d DayCalls, day int64) int { return cmp.Compare(d.Day, day) })
	if !found {
		u.Days = slices.Insert(u.Days, i, DayCalls{Day: day})
	}
	u.Days[i].Calls.add(c)
}

// Trim drops the days that are over for longer than they are kept, and those that
// are yet to come but for the nearest.
func (u *Usage) Trim(now time.Time) {
	first := DayOf(now) - UsageDays + 1
	u.Days = slices.DeleteFunc(u.Days, func(d DayCalls) bool { return d.Day < first })
	u.Days = u.Days[:min(len(u.Days), u.come(now)+daysToCome)]
}

// come is how many of the days have come.
func (u *Usage) come(now time.Time) int {
	today := DayOf(now)
	for i := range u.Days {
		if u.Days[i].Day > today {
			return i
		}
	}
	return len(u.Days)
}

// upTo returns the usage without a last use or refusal that is of a later day. They
// are of a clock that was ahead, and would hide those of all nodes and calls since.
func (u Usage) upTo(day int64) Usage {
	if DayOf(u.LastUsed) > day {
		u.LastUsed = time.Time{}
	}
	if DayOf(u.LastRefused) > day {
		u.LastRefused, u.Reason = time.Time{}, 0
	}
	return u
}

// usage is what a node counts for a token, or sees of a source, while the node runs. It
// belongs to the name and survives every change of the record.
type usage struct {
	Budget      Budget
	lastUsed    atomic.Int64 // Unix seconds
	lastRefused atomic.Int64 // Unix seconds and reason, see packRefusal
	days        atomic.Pointer[heldDays]
	telemetry   atomic.Pointer[telemetry]

	// stored is what each node had stored, by node. What this process has
	// counted comes on top. Guarded by Credentials.mu.
	stored map[string]Usage
}

// heldDays are the counters of a process. They do not change: a call on another
// day than the one before puts others in their place.
type heldDays struct {
	now *dayCounter   // of the latest call's day
	all []*dayCounter // oldest first, no day twice
}

// dayCounter counts the calls of one day in this process.
type dayCounter struct {
	day   int64
	calls [2][outcomeCount]atomic.Int64
}

// lastUsedStep is the coarseness of "last used", which is kept for people and
// must not cost a shared write a query.
const lastUsedStep = 60

// Count notes a call at now. op is one operation. It takes no lock, and
// allocates once a day.
func (u *usage) Count(op Operations, o Outcome, now time.Time) {
	at := now.Unix()
	i := 0
	if op == ThrottleSystem {
		i = 1
	}
	u.on(at / secondsPerDay).calls[i][o].Add(1)
	if o.refused() {
		noteRefusal(&u.lastRefused, at, o)
	}
	if last := u.lastUsed.Load(); !o.useless() && (at-last >= lastUsedStep || last >= dayAfter(at)) {
		u.lastUsed.Store(at - at%lastUsedStep)
	}
}

// on returns the counter of a day.
func (u *usage) on(day int64) *dayCounter {
	for {
		held := u.days.Load()
		if held != nil && held.now.day == day {
			return held.now
		}
		if next := held.turn(day); u.days.CompareAndSwap(held, next) {
			return next.now
		}
	}
}

// mostDays is how many days a process holds. There is room for some to come beside
// all that show, and as much again until the clock is right and the farthest go.
const mostDays = UsageDays + 2*daysToCome + 1

// turn returns the counters when it is a day. What has to go is the farthest of
// what is yet to come, then the oldest.
func (d *heldDays) turn(day int64) *heldDays {
	var all []*dayCounter
	if d != nil {
		all = d.all
	}
	i, found := slices.BinarySearchFunc(all, day, func(c *dayCounter, day int64) int { return cmp.Compare(c.day, day) })
	if !found {
		all = slices.Insert(slices.Clone(all), i, &dayCounter{day: day})
	}
	now := all[i]
	all = all[:min(len(all), i+1+daysToCome)]
	return &heldDays{now, all[max(0, len(all)-mostDays):]}
}

// held are the counters that this process holds.
func (u *usage) held() []*dayCounter {
	if d := u.days.Load(); d != nil {
		return d.all
	}
	return nil
}

// counted adds up what this process has counted and still holds.
func (u *usage) counted() (sum int64) {
	for _, c := range u.held() {
		for op := range c.calls {
			for o := range c.calls[op] {
				sum += c.calls[op][o].Load()
			}
		}
	}
	return sum
}

// running is what this process has counted, with the last use and refusal that
// this node knows of, its own or not.
func (u *usage) running() (r Usage) {
	for _, c := range u.held() {
		var calls Calls
		for op := range calls {
			for o := range calls[op] {
				calls[op][o] = c.calls[op][o].Load()
			}
		}
		r.addDay(c.day, &calls)
	}
	r.LastUsed = u.latestUse()
	r.LastRefused, r.Reason = unpackRefusal[Outcome](u.lastRefused.Load())
	return r
}

// LastUsed returns when the token was last used, to the minute and as far as
// this node knows, or the zero time.
func (u *usage) LastUsed(now time.Time) time.Time {
	return Usage{LastUsed: u.latestUse()}.upTo(DayOf(now)).LastUsed
}

func (u *usage) latestUse() time.Time {
	if s := u.lastUsed.Load(); s != 0 {
		return time.Unix(s, 0).UTC()
	}
	return time.Time{}
}

// packRefusal puts time and reason into a number that is the larger the later.
func packRefusal[T Outcome | Refusal](at int64, why T) int64 { return at<<8 | int64(why) }

func unpackRefusal[T Outcome | Refusal](n int64) (time.Time, T) {
	if n == 0 {
		return time.Time{}, 0
	}
	return time.Unix(n>>8, 0).UTC(), T(n & 0xff)
}

// dayAfter is when the day ends that a moment is of.
func dayAfter(at int64) int64 { return (at/secondsPerDay + 1) * secondsPerDay }

// noteRefusal notes a refusal unless a later one is noted. One of a later day does not
// count as that: the clock was ahead then, and nothing else would show until it is so late.
func noteRefusal[T Outcome | Refusal](v *atomic.Int64, at int64, why T) {
	n, ahead := packRefusal(at, why), packRefusal[T](dayAfter(at), 0)
	for {
		old := v.Load()
		if n <= old && old < ahead || v.CompareAndSwap(old, n) {
			return
		}
	}
}

// raise lets a number grow to n.
func raise(v *atomic.Int64, n int64) {
	for {
		old := v.Load()
		if old >= n || v.CompareAndSwap(old, n) {
			return
		}
	}
}
