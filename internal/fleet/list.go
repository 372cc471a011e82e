package fleet

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/vehicle"
)

// Order is the sort key of a vehicle in a list: vehicles are sorted by ascending Rank, then by
// ascending Time. Vehicles with equal Order are sorted by their hash, so their order stays the same
// as long as the table exists.
type Order struct {
	Rank int64
	Time int64 // of the newest verdict; negated if the newest comes first
}

// Question defines which vehicles a list contains, and their order.
type Question struct {
	// Rank returns the rank of a vehicle. The vehicles of the lowest rank come first. A vehicle of
	// negative rank is not listed. driving and throttle say whether there is a verdict, as the
	// outcome that a query gets, such as Answered or Stale. state and system are the newest
	// verdicts, even if they are stale. Rank is called once for each combination of arguments, not
	// for each vehicle.
	Rank func(driving, throttle vehicle.Outcome, state vehicle.DrivingState, system vehicle.ThrottleSystem) int8
	// OldestFirst sorts vehicles of equal rank by the time of their newest verdict, the oldest
	// first. If false, the newest come first.
	OldestFirst bool
	// Now returns the present time. A verdict is stale if it is more than MaxAge older than the
	// present time. If MaxAge is 0, no verdict is stale. [Table.First] calls Now once, and
	// [Table.Each] calls it for each vehicle.
	Now    func() vehicle.UnixMilli
	MaxAge time.Duration
	// Match reports whether a vehicle with the given vid may be in the list; vehicles whose vid
	// does not match are left out. It is called by several goroutines. If nil, every vid matches.
	Match func(vid []byte) bool
}

// order is a Question in a form that is fast to evaluate on packed values (see value), because
// every page of a list evaluates it on the values of all vehicles.
type order struct {
	// ranks has the rank of a vehicle for each combination of the outcomes of its two verdicts and
	// the lowest bits of its packed value, which have its two states.
	ranks     [kinds]int8
	oldest    int64  // verdicts before this time are stale
	fresh     uint64 // verdicts more than this many milliseconds after oldest are stale, too (too far ahead)
	direction int64  // 1 or -1, by which a verdict's time is multiplied in Order
}

// outcomeBits is the number of bits in a result of [order.outcome].
const outcomeBits = 2

// kinds is the number of the results of [order.kind].
const kinds = 1 << (2*outcomeBits + stateBits)

func (q *Question) order() *order {
	r := &order{direction: -1}
	if q.OldestFirst {
		r.direction = 1
	}
	for i := range r.ranks {
		driving, throttle, a := ofKind(i)
		r.ranks[i] = q.Rank(driving, throttle, a.Driving.State, a.Throttle.System)
	}
	r.asOf(q)
	return r
}

// asOf sets oldest and fresh, the limits that decide which verdicts are stale, for the present time
// that q.Now returns.
func (r *order) asOf(q *Question) {
	r.oldest, r.fresh = math.MinInt64, math.MaxUint64
	if now := q.Now(); q.MaxAge > 0 {
		r.oldest, r.fresh = int64(now)-q.MaxAge.Milliseconds(), uint64((q.MaxAge + vehicle.MaxAhead).Milliseconds())
	}
}

// outcome is like [vehicle.ThrottleVerdict.At], for the time and MaxAge that asOf was given, and
// the time of a verdict in Unix milliseconds, 0 if there is none. It returns Answered in place of
// NotDriving.
func (r *order) outcome(at int64) uint64 {
	if at == 0 {
		return uint64(vehicle.Unknown)
	}
	if uint64(at)-uint64(r.oldest) > r.fresh {
		return uint64(vehicle.Stale)
	}
	return uint64(vehicle.Answered)
}

// orderOf returns the sort key of the vehicle whose packed value has the words v0 and v1. If the
// vehicle has a negative rank, and so is not listed, ok is false.
func (r *order) orderOf(v0, v1 uint64) (o Order, ok bool) {
	driving, throttle := int64(v0)>>stateBits, int64(v1)
	rank := r.ranks[r.kind(v0, v1)]
	return Order{int64(rank), r.direction * max(driving, throttle)}, rank >= 0
}

// kind returns the index of a packed value in ranks.
func (r *order) kind(v0, v1 uint64) uint64 {
	return (r.outcome(int64(v0)>>stateBits)<<outcomeBits|r.outcome(int64(v1)))<<stateBits | v0&(1<<stateBits-1)
}

// ofKind is the inverse of [order.kind]. The verdicts in a have no times.
func ofKind(kind int) (driving, throttle vehicle.Outcome, a Answer) {
	a = value{uint64(kind) & (1<<stateBits - 1)}.unpack()
	driving = vehicle.Outcome(kind >> stateBits >> outcomeBits)
	if driving == vehicle.Answered && a.Driving.NotDriving {
		driving = vehicle.NotDriving
	}
	return driving, vehicle.Outcome(kind >> stateBits & (1<<outcomeBits - 1)), a
}

// Place is the position of a vehicle in a list.
type Place struct {
	Order
	Hash [2]uint64
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Rank, q.Rank), cmp.Compare(p.Time, q.Time),
		cmp.Compare(p.Hash[0], q.Hash[0]), cmp.Compare(p.Hash[1], q.Hash[1]))
}

// Listed is one vehicle in the list of vehicles that an operator sees, with its verdicts.
type Listed struct {
	ID vehicle.ID
	Answer
	Place Place
}

// First returns one page of a list: the n vehicles that follow the place after, or the first n of
// the list if after is nil. matched is the number of vehicles in the whole list. next is the place
// to pass as after for the next page; it is nil if there is no next page. If ctx has ended, the
// error is that of ctx, and the other results are incomplete; otherwise it is nil. The table must
// store vids (see [Table.KeepNames]).
//
// A vehicle is left out of the page, but counted in matched, if its vid could not be stored for
// lack of memory. So the page may have fewer than n vehicles although there is a next page. First
// scans the table on all processors and collects up to 2(n+1) vehicles on each processor.
func (t *Table) First(ctx context.Context, q Question, after *Place, n int) (
	list []Listed, matched int, next *Place, err error,
) {
	var (
		taken atomic.Int64
		mu    sync.Mutex // guards list and matched
		walks sync.WaitGroup
		by    = q.order()
	)
	for range runtime.GOMAXPROCS(0) {
		walks.Go(func() {
			mine := leading{most: n + 1, after: after, match: q.Match}
			for ctx.Err() == nil {
				share := int(taken.Add(1)) - 1
				if share >= shardCount {
					break
				}
				if q.Match == nil {
					t.walkShare(share, by, &mine)
				} else {
					t.walkNames(share, by, &mine)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			matched += mine.matched
			list = append(list, mine.list...)
		})
	}
	walks.Wait()
	all := leading{most: n + 1, list: list}
	all.cut()
	if len(all.list) > n {
		all.list = all.list[:n]
		next = new(all.list[n-1].Place)
	}
	return t.named(all.list), matched, next, ctx.Err()
}

// Each calls do for each vehicle that q selects, in no order. It stops when do returns an error, or
// when ctx has ended, and returns this error. It leaves out vehicles whose vid is not stored. It
// copies the vids of one shard at a time, about a thousandth of all vids. The table must store vids
// (see [Table.KeepNames]).
func (t *Table) Each(ctx context.Context, q Question, do func(Listed) error) error {
	var vids []byte
	by := q.order()
	for i := range shardCount {
		if err := ctx.Err(); err != nil {
			return err
		}
		vids = t.names.appendShard(i, vids[:0])
		for _, vid := range vidsOf(vids) {
			if q.Match != nil && !q.Match(vid) {
				continue
			}
			by.asOf(&q) // again for each vehicle, because do may take minutes in total
			if l, ok := t.listed(vid, by); ok {
				l.ID = vehicle.ID(vid)
				if err := do(l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// walkShare adds the vehicles of one shard that belong to the list to into.
func (t *Table) walkShare(share int, by *order, into *leading) {
	t.shards[share].each(func(e *slot) {
		if o, ok := by.orderOf(e[2], e[3]); ok && into.count(o) {
			into.add(Listed{Answer: value{e[2], e[3]}.unpack(), Place: Place{o, [2]uint64{e[0], e[1]}}})
		}
	})
}

// walkNames adds those vehicles of a shard to into that belong to the list and whose vid matches.
func (t *Table) walkNames(share int, by *order, into *leading) {
	into.vids = t.names.appendShard(share, into.vids[:0])
	for _, vid := range vidsOf(into.vids) {
		if !into.match(vid) {
			continue
		}
		if l, ok := t.listed(vid, by); ok && into.count(l.Place.Order) {
			into.add(l)
		}
	}
}

// listed looks up a vehicle in the table and returns its verdicts and place, without its vid. If
// the vehicle is not in the table, or does not belong to the list, ok is false.
func (t *Table) listed(vid []byte, by *order) (l Listed, ok bool) {
	s, k := t.find(vid)
	v, known := s.find(k)
	if !known {
		return l, false
	}
	if l.Place.Order, ok = by.orderOf(v[0], v[1]); !ok {
		return l, false
	}
	l.Answer, l.Place.Hash = v.unpack(), [2]uint64{k.hi, k.lo}
	return l, true
}

// leading collects the first vehicles of a list while the table is scanned.
type leading struct {
	most    int
	after   *Place // this vehicle and all before it are left out; nil: none
	matched int
	list    []Listed // at most 2*most; cut keeps the first vehicles
	last    Place    // place of the last vehicle after a cut; set if enough is true
	enough  bool     // the list has reached the length most

	vids  []byte // buffer of walkNames
	match func(vid []byte) bool
}

// count counts a vehicle that belongs to the list. It reports whether the vehicle may be among the
// first ones, so that the caller must pass it to add.
func (b *leading) count(o Order) bool {
	b.matched++
	return !b.enough || o.Rank < b.last.Rank || o.Rank == b.last.Rank && o.Time <= b.last.Time
}

func (b *leading) add(l Listed) {
	if b.enough && b.last.compare(l.Place) <= 0 || b.after != nil && l.Place.compare(*b.after) <= 0 {
		return
	}
	if b.list = append(b.list, l); len(b.list) >= 2*b.most {
		b.cut()
	}
}

func (b *leading) cut() {
	slices.SortFunc(b.list, func(x, y Listed) int { return x.Place.compare(y.Place) })
	if len(b.list) >= b.most {
		b.list = b.list[:b.most]
		b.last, b.enough = b.list[b.most-1].Place, true
	}
}
