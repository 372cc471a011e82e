package fleet

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
)

// Order is where a vehicle stands among others, the least first. Vehicles of equal order stand in
// an order of the table's own, which lasts as long as the table does.
type Order struct {
	Rank int64
	Time int64 // of the newest verdict; negative if the newest comes first
}

// Question says which vehicles are listed, and in which order.
type Question struct {
	// Rank orders vehicles by what their verdicts answer, the least rank first. A vehicle of
	// negative rank is not listed. Rank is called for each combination and not for each vehicle.
	Rank func(driving, throttle vehicle.Outcome, state vehicle.DrivingState, system vehicle.ThrottleSystem) int8
	// OldestFirst orders vehicles of equal rank the other way round: the newest come first otherwise.
	OldestFirst bool
	// Now and MaxAge say which verdicts are stale. A page is as of one time.
	Now    func() vehicle.UnixMilli
	MaxAge time.Duration
	// Prefix is how the vid begins; "": it may begin in any way.
	Prefix string
}

// order is a Question as the table asks it. It works on packed values, because it looks at all
// of them for each page.
type order struct {
	// ranks has a rank for each combination of both outcomes and of the bits of a value.
	ranks     [1 << (2*outcomeBits + stateBits)]int8
	oldest    int64  // verdicts of before are stale
	fresh     uint64 // and those later than so many milliseconds after it
	direction int64  // of times
}

// outcomeBits are the bits of what [order.outcome] returns.
const outcomeBits = 2

func (q *Question) order() *order {
	r := &order{direction: -1}
	if q.OldestFirst {
		r.direction = 1
	}
	for i := range r.ranks {
		v := value{uint64(i) & (1<<stateBits - 1)}.unpack()
		driving := vehicle.Outcome(i >> stateBits >> outcomeBits)
		throttle := vehicle.Outcome(i >> stateBits & (1<<outcomeBits - 1))
		if driving == vehicle.Answered && v.Driving.NotDriving {
			driving = vehicle.NotDriving
		}
		r.ranks[i] = q.Rank(driving, throttle, v.Driving.State, v.Throttle.System)
	}
	r.asOf(q)
	return r
}

// asOf sets which verdicts are stale.
func (r *order) asOf(q *Question) {
	r.oldest, r.fresh = math.MinInt64, math.MaxUint64
	if now := q.Now(); q.MaxAge > 0 {
		r.oldest, r.fresh = int64(now)-q.MaxAge.Milliseconds(), uint64((q.MaxAge + vehicle.MaxAhead).Milliseconds())
	}
}

// outcome is whether a verdict of a time is an answer, unknown or stale, as the verdict's own At
// tells.
func (r *order) outcome(at int64) uint64 {
	if at == 0 {
		return uint64(vehicle.Unknown)
	}
	if uint64(at)-uint64(r.oldest) > r.fresh {
		return uint64(vehicle.Stale)
	}
	return uint64(vehicle.Answered)
}

// of returns the order of a vehicle; ok is false if it is not listed.
func (r *order) of(v0, v1 uint64) (o Order, ok bool) {
	driving, throttle := int64(v0)>>stateBits, int64(v1)
	rank := r.ranks[(r.outcome(driving)<<outcomeBits|r.outcome(throttle))<<stateBits|v0&(1<<stateBits-1)]
	return Order{int64(rank), r.direction * max(driving, throttle)}, rank >= 0
}

// Place is where a vehicle stands in a list.
type Place struct {
	Order
	Hash [2]uint64
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Rank, q.Rank), cmp.Compare(p.Time, q.Time),
		cmp.Compare(p.Hash[0], q.Hash[0]), cmp.Compare(p.Hash[1], q.Hash[1]))
}

// Listed is one vehicle of a list.
type Listed struct {
	ID vehicle.ID
	Answer
	Place Place
}

// First returns the first vehicles of a list behind a place, at most n, and how many
// vehicles the list has in all. A nil place is the beginning; others follow behind next, none
// if that is nil. It leaves out those whose vids had no room. It walks through the table on all
// processors and remembers some 2n vehicles on each.
func (t *Table) First(ctx context.Context, q Question, after *Place, n int) (list []Listed, matched int, next *Place, err error) {
	var (
		taken atomic.Int64
		mu    sync.Mutex // guards list and matched
		walks sync.WaitGroup
		by    = q.order()
	)
	for range runtime.GOMAXPROCS(0) {
		walks.Go(func() {
			mine := leading{most: n + 1, after: after, prefix: []byte(q.Prefix)}
			for ctx.Err() == nil {
				share := int(taken.Add(1)) - 1
				if share >= shardCount {
					break
				}
				if q.Prefix == "" {
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
	for i := range all.list {
		all.list[i].ID = t.nameOf(key{all.list[i].Place.Hash[0], all.list[i].Place.Hash[1]})
	}
	return slices.DeleteFunc(all.list, func(l Listed) bool { return l.ID == "" }), matched, next, ctx.Err()
}

// Each calls do with each vehicle of a list, in no order, until do returns an error. It
// remembers the vids of one shard, a thousandth of all.
func (t *Table) Each(ctx context.Context, q Question, do func(Listed) error) error {
	var vids []byte
	prefix, by := []byte(q.Prefix), q.order()
	for i := range shardCount {
		if err := ctx.Err(); err != nil {
			return err
		}
		vids = t.names.appendShard(i, vids[:0])
		for _, vid := range vidsOf(vids) {
			if !bytes.HasPrefix(vid, prefix) {
				continue
			}
			by.asOf(&q) // who takes them may take minutes
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

// walkShare walks through one shard. Its writers wait meanwhile, its readers do not.
func (t *Table) walkShare(share int, by *order, into *leading) {
	s := &t.shards[share]
	s.mu.Lock()
	defer s.mu.Unlock()
	a := *s.slots.Load()
	for i := range a {
		e := &a[i]
		if e.free() {
			continue
		}
		if o, ok := by.of(e[2], e[3]); ok && into.counts(o) {
			into.add(Listed{Answer: value{e[2], e[3]}.unpack(), Place: Place{o, [2]uint64{e[0], e[1]}}})
		}
	}
}

// walkNames walks through the vids of one shard.
func (t *Table) walkNames(share int, by *order, into *leading) {
	into.vids = t.names.appendShard(share, into.vids[:0])
	for _, vid := range vidsOf(into.vids) {
		if !bytes.HasPrefix(vid, into.prefix) {
			continue
		}
		if l, ok := t.listed(vid, by); ok && into.counts(l.Place.Order) {
			into.add(l)
		}
	}
}

// listed looks a vehicle up; ok is false if it is not listed.
func (t *Table) listed(vid []byte, by *order) (l Listed, ok bool) {
	s, k := t.find(vid)
	v, known := s.find(k)
	if !known {
		return l, false
	}
	if l.Place.Order, ok = by.of(v[0], v[1]); !ok {
		return l, false
	}
	l.Answer, l.Place.Hash = v.unpack(), [2]uint64{k.hi, k.lo}
	return l, true
}

// leading remembers the first vehicles of a list.
type leading struct {
	most    int
	after   *Place // nil: from the beginning
	matched int
	list    []Listed // up to twice as many as asked for; cut leaves the first
	last    Place    // that is remembered, once there are enough
	enough  bool

	vids   []byte // of the walk that fills it
	prefix []byte
}

// counts counts a vehicle, and reports whether it may be among the first.
func (b *leading) counts(o Order) bool {
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
