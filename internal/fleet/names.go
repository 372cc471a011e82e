package fleet

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"carstate/internal/vehicle"
)

// names keeps the vids of the vehicles in a table, by a part of their hash, in arrays
// without pointers. A vid is found by its vehicle's key: the few vids that share the part
// are hashed. Only a vehicle that comes or goes touches them, no new verdict does.
type names struct {
	most   int64        // bytes; a vehicle whose vid has no room is counted and not listed
	bytes  atomic.Int64 // of all vids
	kept   atomic.Int64 // vids
	shards [shardCount]nameShard
}

// nameShard has the vids of one shard of the table, so that a walk through both finds the
// second one in the processor's cache.
type nameShard struct {
	mu      sync.Mutex // guards buckets
	buckets [shardBuckets][]byte
}

// shardBuckets is how many buckets a shard has: 76 vids share one at 10 million vehicles.
const shardBuckets = 128

// KeepNames makes the table keep the vids of its vehicles, so that it can list them. The vids
// take at most the given number of bytes, and some 5 bytes a vehicle besides. KeepNames must be
// called before the first Put.
func (t *Table) KeepNames(most int64) { t.names = &names{most: most} }

// Named is how many vehicles the table can list.
func (t *Table) Named() int { return int(t.names.kept.Load()) }

// bucket returns a bucket and its lock.
func (n *names) bucket(k key) (*[]byte, *sync.Mutex) {
	s := &n.shards[k.hi%shardCount]
	return &s.buckets[k.hi/shardCount%shardBuckets], &s.mu
}

// vidsOf yields each vid of a bucket, and where its length stands. A vid has 1 to 256
// characters, and its length less one stands before it.
func vidsOf(bucket []byte) iter.Seq2[int, []byte] {
	return func(yield func(at int, vid []byte) bool) {
		for at := 0; at < len(bucket); {
			end := at + 2 + int(bucket[at])
			if !yield(at, bucket[at+1:end]) {
				return
			}
			at = end
		}
	}
}

// addName keeps the vid of a vehicle that is new. The table is asked once more under the lock:
// a Delete at the same time removes the vehicle there first, and its vid second.
func (t *Table) addName(s *shard, k key, id vehicle.ID) {
	n := t.names
	if n == nil || len(id) == 0 || len(id) > vehicle.MaxReportingID {
		return
	}
	b, lock := n.bucket(k)
	lock.Lock()
	defer lock.Unlock()
	if _, known := s.find(k); !known {
		return
	}
	for _, vid := range vidsOf(*b) {
		if string(vid) == string(id) {
			return // a vehicle that had expired
		}
	}
	if n.bytes.Add(int64(1+len(id))) > n.most {
		n.bytes.Add(-int64(1 + len(id)))
		return
	}
	n.kept.Add(1)
	if need := len(*b) + 1 + len(id); need > cap(*b) {
		larger := append(slices.Grow([]byte(nil), need+need/16), *b...)
		clear(*b)
		*b = larger
	}
	*b = append(append(*b, byte(len(id)-1)), id...)
}

// removeName drops the vid of a vehicle that the table does not have any more.
func (t *Table) removeName(k key, id vehicle.ID) {
	if t.names == nil {
		return
	}
	b, lock := t.names.bucket(k)
	lock.Lock()
	defer lock.Unlock()
	for at, vid := range vidsOf(*b) {
		if string(vid) == string(id) {
			t.names.bytes.Add(-int64(1 + len(vid)))
			t.names.kept.Add(-1)
			*b = slices.Delete(*b, at, at+1+len(vid)) // which clears what is left behind
			return
		}
	}
}

// dropNames drops the vids of all vehicles that the table does not have any more.
func (t *Table) dropNames() {
	n := t.names
	if n == nil {
		return
	}
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for j, b := range s.buckets {
			kept := b[:0]
			for at, vid := range vidsOf(b) {
				s, k := t.find(vid)
				if _, known := s.find(k); known {
					kept = append(kept, b[at:at+1+len(vid)]...)
				} else {
					n.bytes.Add(-int64(1 + len(vid)))
					n.kept.Add(-1)
				}
			}
			clear(b[len(kept):])
			s.buckets[j] = kept
		}
		s.mu.Unlock()
	}
}

// nameOf returns the vid of a vehicle's key; "" if the vehicle has gone.
func (t *Table) nameOf(k key) vehicle.ID {
	b, lock := t.names.bucket(k)
	lock.Lock()
	defer lock.Unlock()
	for _, vid := range vidsOf(*b) {
		if _, of := t.find(vid); of == k {
			return vehicle.ID(vid)
		}
	}
	return ""
}

// appendShard appends the vids of a shard, for vidsOf.
func (n *names) appendShard(i int, vids []byte) []byte {
	s := &n.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.buckets {
		vids = append(vids, b...)
	}
	return vids
}
