// Package fleet holds the latest verdicts of every vehicle in memory, so that a query is answered
// without I/O. It can be filled again from the store.
//
// A vehicle is a 128-bit hash of its vid, with seeds of the process, so that nobody can choose vids
// that collide. Two of n vehicles have the same hash with a probability of about n²/2¹²⁹: 10⁻²³ at
// 100 million. Vids are stored only after [Table.KeepNames].
package fleet

import (
	"hash/maphash"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// Table is safe for concurrent use.
type Table struct {
	seedHi, seedLo maphash.Seed
	vehicles       atomic.Int64
	newcomers      newcomers
	names          *names // nil if the table does not store vids
	shards         [shardCount]shard
}

func New() *Table {
	t := &Table{seedHi: maphash.MakeSeed(), seedLo: maphash.MakeSeed()}
	t.newcomers.admitted = make(map[key]time.Time)
	for i := range t.shards {
		t.shards[i].init(float64(i) / shardCount)
	}
	return t
}

func (t *Table) find(vid []byte) (*shard, key) {
	k := key{maphash.Bytes(t.seedHi, vid), maphash.Bytes(t.seedLo, vid)}
	if k == (key{}) {
		k.lo = 1 // a key of zeros marks a free slot
	}
	return &t.shards[k.hi%shardCount], k
}

// Grow makes room for n vehicles. Otherwise, growing tenfold moves each about eight times.
func (t *Table) Grow(n int) {
	mean := float64(n) / shardCount
	for i := range t.shards {
		t.shards[i].grow(int(mean + 2*math.Sqrt(mean))) // few shards have more
	}
}

func (t *Table) Put(id vehicle.ID, a Answer) (was Answer) {
	s, k := t.find([]byte(id))
	old, found := s.put(k, pack(a))
	if !found {
		t.vehicles.Add(1)
		t.newcomers.remove(k)
		t.addName(s, k, id)
	}
	return old.unpack()
}

func (t *Table) Delete(id vehicle.ID) {
	s, k := t.find([]byte(id))
	t.names.willRemove()
	if s.remove(k) {
		t.vehicles.Add(-1)
	}
	t.removeName(k, id)
	t.newcomers.remove(k)
}

// Get returns the zero Answer for an unknown vehicle. It does not allocate, and waits only for a
// writer that the operating system has suspended.
func (t *Table) Get(vid []byte) Answer {
	s, k := t.find(vid)
	v, _ := s.find(k)
	return v.unpack()
}

func (t *Table) Len() int { return int(t.vehicles.Load()) }

// newcomers are admitted vehicles without a state. They count towards the table's limit, lest it is
// exceeded when their states arrive.
type newcomers struct {
	most atomic.Int64 // limit of newcomers and vehicles in the table together; 0: none
	n    atomic.Int64 // newcomers, and vehicles that Admit is checking

	mu       sync.Mutex // guards the fields below
	admitted map[key]time.Time
	expired  time.Time
}

// A newcomer is dropped after one to two newcomerLife: its samples may never have been stored.
const newcomerLife = 10 * time.Minute

// expire is called with mu locked.
func (c *newcomers) expire() {
	now, before := time.Now(), len(c.admitted)
	if now.Sub(c.expired) > newcomerLife {
		maps.DeleteFunc(c.admitted, func(_ key, at time.Time) bool { return now.Sub(at) > newcomerLife })
		c.n.Add(int64(len(c.admitted) - before))
		c.expired = now
	}
}

func (c *newcomers) remove(k key) {
	if c.n.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, admitted := c.admitted[k]; admitted {
		delete(c.admitted, k)
		c.n.Add(-1)
	}
}

// Bound limits [Table.Admit]; 0 means no limit.
func (t *Table) Bound(most int) { t.newcomers.most.Store(int64(most)) }

func (t *Table) Limit() int64 { return t.newcomers.most.Load() }

// Admit reports whether samples may be accepted: the vehicle is known, was admitted before, or
// fits, which Admit then records.
func (t *Table) Admit(id vehicle.ID) bool {
	c := &t.newcomers
	most := c.most.Load()
	if most == 0 {
		return true
	}
	s, k := t.find([]byte(id))
	if _, known := s.find(k); known {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, admitted := c.admitted[k]; admitted {
		return true
	}
	// From here on, remove in a concurrent Put finds n > 0, and waits for c.mu. But a Put may have
	// added the vehicle just before.
	n := c.n.Add(1)
	if _, known := s.find(k); known {
		c.n.Add(-1)
		return true
	}
	if t.vehicles.Load()+n > most {
		c.n.Add(-1)
		c.expire()
		return false
	}
	c.expire()
	c.admitted[k] = time.Now()
	return true
}

// Expire removes the vehicles whose verdicts are both older than before, and returns how many.
func (t *Table) Expire(before time.Time) int {
	limit, n := signal.At(before), 0
	t.names.willRemove()
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
