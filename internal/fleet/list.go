package fleet

import (
	"bytes"
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"carstate/internal/vehicle"
)

// Order is where a vehicle stands among others, the least first. Vehicles of equal order
// stand in an order of the table's own, which lasts as long as the table does.
type Order [2]int64

// Question says which vehicles are listed.
type Question struct {
	// Match returns the order of a vehicle; ok is false if it is not listed.
	Match func(Answer) (o Order, ok bool)
	// Prefix is how the vid begins; "": as it likes.
	Prefix string
}

// Place is where a vehicle stands in a list.
type Place struct {
	Order
	Hash [2]uint64
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Order[0], q.Order[0]), cmp.Compare(p.Order[1], q.Order[1]),
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
					t.walkShare(share, q.Match, &mine)
				} else {
					t.walkNames(share, q.Match, &mine)
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
	prefix := []byte(q.Prefix)
	for i := range shardCount {
		if err := ctx.Err(); err != nil {
			return err
		}
		vids = t.names.appendShard(i, vids[:0])
		for _, vid := range vidsOf(vids) {
			if !bytes.HasPrefix(vid, prefix) {
				continue
			}
			if l, ok := t.listed(vid, q.Match); ok {
				l.ID = vehicle.ID(vid)
				if err := do(l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// walkShare walks through one shard. Its writers wait while it is copied.
func (t *Table) walkShare(share int, match func(Answer) (Order, bool), into *leading) {
	into.slots = t.shards[share].appendSlots(into.slots[:0])
	for i := range into.slots {
		e := &into.slots[i]
		if e.free() {
			continue
		}
		a := value{e[2], e[3]}.unpack()
		if o, ok := match(a); ok && into.counts(o) {
			into.add(Listed{Answer: a, Place: Place{o, [2]uint64{e[0], e[1]}}})
		}
	}
}

// walkNames walks through the vids of one shard.
func (t *Table) walkNames(share int, match func(Answer) (Order, bool), into *leading) {
	into.vids = t.names.appendShard(share, into.vids[:0])
	for _, vid := range vidsOf(into.vids) {
		if !bytes.HasPrefix(vid, into.prefix) {
			continue
		}
		if l, ok := t.listed(vid, match); ok && into.counts(l.Place.Order) {
			into.add(l)
		}
	}
}

// listed looks a vehicle up; ok is false if it is not listed.
func (t *Table) listed(vid []byte, match func(Answer) (Order, bool)) (l Listed, ok bool) {
	s, k := t.find(vid)
	v, known := s.find(k)
	if !known {
		return l, false
	}
	l.Answer = v.unpack()
	l.Place.Hash = [2]uint64{k.hi, k.lo}
	l.Place.Order, ok = match(l.Answer)
	return l, ok
}

// leading remembers the first vehicles of a list.
type leading struct {
	most    int
	after   *Place // nil: from the beginning
	matched int
	list    []Listed // up to twice as many as asked for; cut leaves the first
	last    Place    // that is remembered, once there are enough
	enough  bool

	slots []slot // of the walk that fills it
	vids  []byte

	prefix []byte
}

// counts counts a vehicle, and reports whether it may be among the first.
func (b *leading) counts(o Order) bool {
	b.matched++
	return !b.enough || o[0] < b.last.Order[0] || o[0] == b.last.Order[0] && o[1] <= b.last.Order[1]
}

func (b *leading) add(l Listed) {
	if b.after != nil && l.Place.compare(*b.after) <= 0 {
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
