package fleet

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"example.org/carstate/internal/vehicle"
)

// names stores the vids; the table has only their hashes. To find the vid of a key, it hashes
// the few vids of its bucket.
type names struct {
	most  int64        // in bytes; a vehicle whose vid does not fit is not listed
	bytes atomic.Int64 // used by all vids
	kept  atomic.Int64
	// Until a vehicle is removed, no vid can be stored twice, and addName need not search, which
	// takes a third of the time of loading 10 million vehicles.
	removed atomic.Bool
	shards  [shardCount]nameShard
}

// nameShard has the vids of one shard of the table, so that looking all of them up needs only this
// shard in the processor's cache.
type nameShard struct {
	mu      sync.Mutex // guards buckets
	buckets [shardBuckets][]byte
}

// At 10 million vehicles a bucket has 76 vids.
const shardBuckets = 128

// KeepNames, called before any Put, makes the table store vids, up to most bytes, one more than its
// length for each vid. The memory used is about 5 bytes a vehicle more than these.
func (t *Table) KeepNames(most int64) { t.names = &names{most: most} }

func (t *Table) Named() int { return int(t.names.kept.Load()) }

func (n *names) willRemove() {
	if n != nil && !n.removed.Load() {
		n.removed.Store(true)
	}
}

func (n *names) bucket(k key) (*[]byte, *sync.Mutex) {
	s := &n.shards[k.hi%shardCount]
	return &s.buckets[k.hi/shardCount%shardBuckets], &s.mu
}

// An entry is a byte with the length minus one, and the vid, of 1 to 256 characters.
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

// A concurrent Delete removes the vehicle and then, under the lock, its vid; so addName looks for
// the vehicle under the lock, and no vid of a deleted one remains.
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

func (n *names) appendShard(i int, vids []byte) []byte {
	s := &n.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.buckets {
		vids = append(vids, b...)
	}
	return vids
}
