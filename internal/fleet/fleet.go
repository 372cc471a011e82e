// Package fleet holds the latest verdicts of every vehicle in memory, so that a
// query is answered without I/O. A [Table] is fed from the STATES stream and
// owns nothing: it can be thrown away and filled again.
//
// The table does not keep vehicle ids. It is keyed by a 128-bit hash of the id,
// made of two hash/maphash seeds drawn at random for this process, so that
// nobody outside can choose ids that collide. For n vehicles the odds that any
// two share a hash are about n²/2¹²⁹: 10⁻²⁵ at 10 million.
package fleet

import (
	"hash/maphash"
	"sync"
	"time"

	"carstate/internal/vehicle"
)

// Answer is what the table knows of one vehicle.
type Answer struct {
	Driving  vehicle.DrivingVerdict
	Throttle vehicle.ThrottleVerdict
}

// shardCount spreads the locks; a power of two.
const shardCount = 256

// Table is the latest answer of every vehicle. It is safe for concurrent use.
// Make one with [New].
type Table struct {
	seedHi, seedLo maphash.Seed
	shards         [shardCount]shard
}

type shard struct {
	mu sync.RWMutex // guards m
	m  map[key]record
	_  [64]byte // keeps the locks of two shards off one cache line
}

type key struct{ hi, lo uint64 }

// record is an Answer without pointers and padding, so that the collector never
// walks the table.
type record struct {
	drivingTime  vehicle.UnixMilli
	throttleTime vehicle.UnixMilli
	driving      vehicle.DrivingState
	notDriving   bool
	throttle     vehicle.ThrottleSystem
}

// New returns an empty table.
func New() *Table {
	t := &Table{seedHi: maphash.MakeSeed(), seedLo: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].m = make(map[key]record)
	}
	return t
}

func (t *Table) find(vid []byte) (*shard, key) {
	k := key{maphash.Bytes(t.seedHi, vid), maphash.Bytes(t.seedLo, vid)}
	return &t.shards[k.hi%shardCount], k
}

// Put replaces what is known of a vehicle.
func (t *Table) Put(id vehicle.ID, a Answer) {
	s, k := t.find([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m[k] = record{a.Driving.Time, a.Throttle.Time, a.Driving.State, a.Driving.NotDriving, a.Throttle.System}
}

// Delete forgets a vehicle.
func (t *Table) Delete(id vehicle.ID) {
	s, k := t.find([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, k)
}

// Get returns what is known of a vehicle; the zero Answer, whose outcomes are
// [vehicle.Unknown], if that is nothing. It does not allocate.
func (t *Table) Get(vid []byte) Answer {
	s, k := t.find(vid)
	s.mu.RLock()
	r := s.m[k]
	s.mu.RUnlock()
	return r.answer()
}

func (r record) answer() Answer {
	return Answer{
		Driving:  vehicle.DrivingVerdict{State: r.driving, NotDriving: r.notDriving, Time: r.drivingTime},
		Throttle: vehicle.ThrottleVerdict{System: r.throttle, Time: r.throttleTime},
	}
}

// Len is the number of vehicles known.
func (t *Table) Len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		n += len(s.m)
		s.mu.RUnlock()
	}
	return n
}

// Expire forgets every vehicle whose verdicts are all older than the given
// time, and returns how many those were.
func (t *Table) Expire(before time.Time) int {
	limit, n := vehicle.At(before), 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for k, r := range s.m {
			if r.drivingTime < limit && r.throttleTime < limit {
				delete(s.m, k)
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}
