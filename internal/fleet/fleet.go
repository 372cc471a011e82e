// Package fleet holds the latest verdicts of every vehicle in memory, so that a query is answered
// without I/O. A [Table] is filled from the states of the store, and can be filled again from them.
//
// The table stores vids only after [Table.KeepNames], which lists of vehicles need. Its key is a
// 128-bit hash of the vid, made with two hash/maphash seeds that are random for each process, so
// that nobody can choose vids that collide. With n vehicles, the probability that any two have the
// same hash is about n²/2¹²⁹: 10⁻²⁵ at 10 million vehicles, 10⁻²³ at 100 million.
//
// A vehicle uses one slot of 32 bytes in an array without pointers. The arrays are 80 to 90 % full,
// so a vehicle takes about 38 bytes. See shard.go.
package fleet

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
)

// Answer holds the latest verdicts of one vehicle.
type Answer struct {
	Driving  vehicle.DrivingVerdict
	Throttle vehicle.ThrottleVerdict
}

// shardCount is the number of shards of a table, a power of two. A shard is copied when it grows,
// and with many shards each copy is small.
const shardCount = 1024

// Table holds the latest answer of every vehicle. It is safe for concurrent use. [New] makes one.
type Table struct {
	seedHi, seedLo maphash.Seed
	vehicles       atomic.Int64
	newcomers      newcomers
	names          *names // nil if the table does not store vids
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
	return t.shardOf(key{maphash.Bytes(t.seedHi, vid), maphash.Bytes(t.seedLo, vid)})
}

func (t *Table) findID(id vehicle.ID) (*shard, key) {
	return t.shardOf(key{maphash.String(t.seedHi, string(id)), maphash.String(t.seedLo, string(id))})
}

func (t *Table) shardOf(k key) (*shard, key) {
	if k == (key{}) {
		k.lo = 1 // a key of zeros marks a free slot
	}
	return &t.shards[k.hi%shardCount], k
}

// Put sets the answer of a vehicle.
func (t *Table) Put(id vehicle.ID, a Answer) {
	s, k := t.findID(id)
	if s.put(k, pack(a)) {
		t.vehicles.Add(1)
		t.newcomers.remove(k)
		t.addName(s, k, id)
	}
}

// Delete removes a vehicle.
func (t *Table) Delete(id vehicle.ID) {
	s, k := t.findID(id)
	if s.remove(k) {
		t.vehicles.Add(-1)
	}
	t.removeName(k, id)
	t.newcomers.remove(k)
}

// Get returns the answer of a vehicle. If the vehicle is not in the table, Get returns the zero
// Answer, whose outcomes are [vehicle.Unknown]. Get does not allocate. It waits for a concurrent
// writer only if the operating system has suspended the writer.
func (t *Table) Get(vid []byte) Answer {
	s, k := t.find(vid)
	return s.get(k).unpack()
}

// Len returns the number of vehicles in the table.
func (t *Table) Len() int { return int(t.vehicles.Load()) }

// Expire removes every vehicle whose two verdicts are both older than the given time. It returns
// the number of removed vehicles.
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

// value is an Answer packed into two words. The first word has the time of the driving verdict and,
// in its lowest four bits, the driving state and the throttle state. The second word has the time
// of the throttle verdict.
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
