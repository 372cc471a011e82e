// Package fleet holds the latest verdicts of every vehicle in memory, so that a
// query is answered without I/O. A [Table] is fed from the STATES stream and
// owns nothing: it can be thrown away and filled again.
//
// The table does not need vehicle ids, and keeps them only where vehicles are listed
// ([Table.KeepNames]). It is keyed by a 128-bit hash of the id,
// made of two hash/maphash seeds drawn at random for this process, so that
// nobody outside can choose ids that collide. For n vehicles the odds that any
// two share a hash are about n²/2¹²⁹: 10⁻²⁵ at 10 million, 10⁻²³ at 100 million.
//
// A vehicle takes one slot of 32 bytes, in arrays without pointers that are
// eight to nine tenths full: about 38 bytes. See shard.go.
package fleet

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
)

// Answer is what the table knows of one vehicle.
type Answer struct {
	Driving  vehicle.DrivingVerdict
	Throttle vehicle.ThrottleVerdict
}

// shardCount keeps what is copied when a shard grows small; a power of two.
const shardCount = 1024

// Table is the latest answer of every vehicle. It is safe for concurrent use.
// Make one with [New].
type Table struct {
	seedHi, seedLo maphash.Seed
	vehicles       atomic.Int64
	newcomers      newcomers
	names          *names // nil: vids are not kept
	shards         [shardCount]shard
}

// New returns an empty table.
func New() *Table {
	t := &Table{seedHi: maphash.MakeSeed(), seedLo: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].init(float64(i) / shardCount)
	}
	return t
}

func (t *Table) find(vid []byte) (*shard, key) {
	return t.of(key{maphash.Bytes(t.seedHi, vid), maphash.Bytes(t.seedLo, vid)})
}

func (t *Table) findID(id vehicle.ID) (*shard, key) {
	return t.of(key{maphash.String(t.seedHi, string(id)), maphash.String(t.seedLo, string(id))})
}

func (t *Table) of(k key) (*shard, key) {
	if k == (key{}) {
		k.lo = 1 // zeros mark a free slot
	}
	return &t.shards[k.hi%shardCount], k
}

// Put replaces what is known of a vehicle.
func (t *Table) Put(id vehicle.ID, a Answer) {
	s, k := t.findID(id)
	if s.put(k, pack(a)) {
		t.vehicles.Add(1)
		t.newcomers.arrived(k)
		t.addName(s, k, id)
	}
}

// Delete forgets a vehicle.
func (t *Table) Delete(id vehicle.ID) {
	s, k := t.findID(id)
	if s.remove(k) {
		t.vehicles.Add(-1)
	}
	t.removeName(k, id)
	t.newcomers.arrived(k)
}

// Get returns what is known of a vehicle; the zero Answer, whose outcomes are
// [vehicle.Unknown], if that is nothing. It does not allocate, and waits for no
// writer but in the rarest of cases.
func (t *Table) Get(vid []byte) Answer {
	s, k := t.find(vid)
	return s.get(k).unpack()
}

// Len is the number of vehicles known.
func (t *Table) Len() int { return int(t.vehicles.Load()) }

// Expire forgets every vehicle whose verdicts are all older than the given
// time, and returns how many those were.
func (t *Table) Expire(before time.Time) int {
	limit, n := vehicle.At(before), 0
	for i := range t.shards {
		n += t.shards[i].removeIf(func(v value) bool {
			a := v.unpack()
			return a.Driving.Time < limit && a.Throttle.Time < limit
		})
	}
	t.vehicles.Add(int64(-n))
	if n > 0 {
		t.dropNames()
	}
	return n
}

// Clear forgets every vehicle.
func (t *Table) Clear() {
	for i := range t.shards {
		t.vehicles.Add(int64(-t.shards[i].removeIf(func(value) bool { return true })))
	}
	t.dropNames()
}

// value is an Answer in two words: the driving verdict's time above four bits
// for both states, and the throttle verdict's time.
type value [2]uint64

const (
	stateBits     = 4
	drivingMask   = 3
	notDrivingBit = 1 << 2
	throttleBit   = 1 << 3

	lastTime = 1<<(63-stateBits) - 1 // 18 million years
)

func pack(a Answer) value {
	t := min(max(a.Driving.Time, -lastTime), lastTime)
	v := value{uint64(t) << stateBits, uint64(a.Throttle.Time)}
	v[0] |= uint64(a.Driving.State) & drivingMask
	if a.Driving.NotDriving {
		v[0] |= notDrivingBit
	}
	if a.Throttle.System == vehicle.ThrottleNormal {
		v[0] |= throttleBit
	}
	return v
}

func (v value) unpack() (a Answer) {
	a.Driving.Time = vehicle.UnixMilli(int64(v[0]) >> stateBits)
	a.Driving.State = vehicle.DrivingState(v[0] & drivingMask)
	a.Driving.NotDriving = v[0]&notDrivingBit != 0
	if v[0]&throttleBit != 0 {
		a.Throttle.System = vehicle.ThrottleNormal
	}
	a.Throttle.Time = vehicle.UnixMilli(v[1])
	return a
}
