package fleet

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"example.org/carstate/internal/vehicle"
)

// names stores the vids of the vehicles in a table, because the table itself has only the hashes of
// the vids (keys). A part of its hash determines the bucket in which a vid is stored. A bucket is
// an array without pointers. To find the vid of a key, names hashes the few vids of the key's
// bucket. A bucket changes when a vehicle is added or removed, but not with a new verdict.
type names struct {
	most  int64        // limit in bytes; a vehicle whose vid does not fit is counted but not listed
	bytes atomic.Int64 // used by all vids
	kept  atomic.Int64 // number of vids
	// removed is set before the first vehicle is removed. Until then no vid can be stored twice, so
	// addName need not search for an equal vid. That search takes a third of the time of loading 10
	// million vehicles.
	removed atomic.Bool
	shards  [shardCount]nameShard
}

// nameShard has the vids of those vehicles that are in one shard of the table. So a scan that looks
// up each vid of a nameShard searches only that shard, which stays in the processor's cache.
type nameShard struct {
	mu      sync.Mutex // guards buckets
	buckets [shardBuckets][]byte
}

// shardBuckets is the number of buckets of a shard. At 10 million vehicles a bucket has 76 vids.
const shardBuckets = 128

// KeepNames makes the table store the vids of its vehicles, so that it can list the vehicles. most
// limits the total size of the vids, in bytes, with one byte more for each vid. A vehicle whose vid
// exceeds the limit is not listed. The memory that storing the vids takes is greater than this
// size, by about 5 bytes per vehicle. KeepNames must be called before the first Put.
func (t *Table) KeepNames(most int64) { t.names = &names{most: most} }

// Named returns how many vehicles the table can list: those whose vid is stored. The table must
// store vids (see [Table.KeepNames]).
func (t *Table) Named() int { return int(t.names.kept.Load()) }

// willRemove sets removed. If n is nil, willRemove does nothing.
func (n *names) willRemove() {
	if n != nil && !n.removed.Load() {
		n.removed.Store(true)
	}
}

// bucket returns the bucket of a key and the mutex that guards it.
func (n *names) bucket(k key) (*[]byte, *sync.Mutex) {
	s := &n.shards[k.hi%shardCount]
	return &s.buckets[k.hi/shardCount%shardBuckets], &s.mu
}

// vidsOf yields each vid of a bucket, and the index at which its entry begins. An entry is one byte
// with the vid's length minus one, and the vid, which has 1 to 256 characters.
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

// addName stores the vid of a new vehicle. It stores nothing if the table stores no vids, if the
// vid would exceed the limit of [Table.KeepNames], or if the vehicle was removed from the shard in
// the meantime. It looks for the vehicle in the shard while it holds the lock of the vids. A
// concurrent Delete first removes the vehicle and then takes the same lock to remove the vid. So
// the vid of a deleted vehicle never remains.
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
	if n.removed.Load() {
		for _, vid := range vidsOf(*b) {
			if string(vid) == string(id) {
				return // the vid is still stored: the vehicle had expired
			}
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

// removeName removes the vid of a vehicle that is no longer in the table.
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
			*b = slices.Delete(*b, at, at+1+len(vid)) // Delete also zeroes the bytes beyond the new end
			return
		}
	}
}

// dropNames removes the vids of all vehicles that are no longer in the table.
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

// nameOf returns the vid of a key, or "" if the vid is not stored.
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

// appendShard appends the vids in shard i to vids, in the format that vidsOf reads.
func (n *names) appendShard(i int, vids []byte) []byte {
	s := &n.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.buckets {
		vids = append(vids, b...)
	}
	return vids
}
