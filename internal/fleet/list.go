package fleet

import (
	"cmp"
	"context"
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

type Question struct {
	// A vehicle of negative rank is not listed. state and system may be of stale verdicts.
	Rank        func(driving, throttle vehicle.Outcome, state driving.State, system throttle.System) int8
	OldestFirst bool
	// Each calls Now for each vehicle, because a list may take minutes. If MaxAge is 0, no verdict
	// is stale.
	Now    func() signal.UnixMilli
	MaxAge time.Duration
	// Match reports whether a vehicle may be in the list. If nil, every vid matches.
	Match func(vid []byte) bool
}

func (q *Question) listed(now signal.UnixMilli, k key, a Answer) (l Listed, ok bool) {
	rank := q.Rank(a.Driving.At(now, q.MaxAge), a.Throttle.At(now, q.MaxAge), a.Driving.State, a.Throttle.System)
	newest := int64(max(a.Driving.Time, a.Throttle.Time))
	if !q.OldestFirst {
		newest = -newest
	}
	return Listed{Answer: a, Place: Place{int64(rank), newest, [2]uint64{k.hi, k.lo}}}, rank >= 0
}

// Places are in order of Rank, then Time, then Hash, which is the same as long as the table lives.
type Place struct {
	Rank int64
	Time int64 // of the newest verdict; negated if the newest comes first
	Hash [2]uint64
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Rank, q.Rank), cmp.Compare(p.Time, q.Time),
		cmp.Compare(p.Hash[0], q.Hash[0]), cmp.Compare(p.Hash[1], q.Hash[1]))
}

type Listed struct {
	ID vehicle.ID
	Answer
	Place Place
}

// First returns the n vehicles after a place, or the first n if after is nil. matched is the length
// of the whole list, and next is after for the next page, or nil. The table must store vids.
//
// A vehicle whose vid is not stored for lack of memory is not returned; only without Match does
// matched count it.
func (t *Table) First(ctx context.Context, q Question, after *Place, n int) (
	list []Listed, matched int, next *Place, err error,
) {
	add := func(l Listed) {
		matched++
		if after != nil && l.Place.compare(*after) <= 0 || len(list) > n && list[n].Place.compare(l.Place) <= 0 {
			return
		}
		i, _ := slices.BinarySearchFunc(list, l, func(x, y Listed) int { return x.Place.compare(y.Place) })
		list = slices.Insert(list, i, l)
		list = list[:min(len(list), n+1)]
	}
	if q.Match != nil {
		err = t.Each(ctx, q, func(l Listed) error { add(l); return nil })
	} else {
		now := q.Now()
		for i := 0; i < shardCount && ctx.Err() == nil; i++ {
			t.shards[i].each(func(e *slot) {
				if l, ok := q.listed(now, key{e[0], e[1]}, value{e[2], e[3]}.unpack()); ok {
					add(l)
				}
			})
		}
		err = ctx.Err()
	}
	if len(list) > n {
		list = list[:n]
		next = new(list[n-1].Place)
	}
	return t.named(list), matched, next, err
}

// Each calls do in no order until an error, or until ctx has ended. It copies the vids of one shard
// at a time. The table must store vids.
func (t *Table) Each(ctx context.Context, q Question, do func(Listed) error) error {
	var vids []byte
	for i := range shardCount {
		if err := ctx.Err(); err != nil {
			return err
		}
		vids = t.names.appendShard(i, vids[:0])
		for _, vid := range vidsOf(vids) {
			if q.Match != nil && !q.Match(vid) {
				continue
			}
			s, k := t.find(vid)
			v, known := s.find(k)
			if !known {
				continue
			}
			if l, ok := q.listed(q.Now(), k, v.unpack()); ok {
				l.ID = vehicle.ID(vid)
				if err := do(l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
