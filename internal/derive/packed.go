package derive

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// packedStates holds the states of vehicles in packed form, in a limited memory without pointers. A
// nearly full bucket takes few new vehicles, and drops others at random. So if the fleet is
// larger than the memory, nearly as many states are found as fit, even if the vehicles report in
// turn; with an LRU cache, none would be.
type packedStates struct {
	seed    maphash.Seed
	limit   int // maximum size in bytes of a bucket
	buckets []bucket
	buffer  []byte // reused
}

const (
	// A bucket has about bucketBytes bytes, some 500 vehicles. A larger one would take longer to rebuild.
	bucketBytes = 256 << 10
	// A bucket that is three quarters full takes one in takes new vehicles, and a full one drops one
	// in drops of its vehicles.
	takes, drops = 16, 8
)

// bucket is a part of the memory. A record in the arena is its size and the length of its state, two
// bytes each, the length of the vid, one byte, the vid, the packed state, and room for the state to
// grow. The vid of a dropped record has length 0.
type bucket struct {
	arena    []byte
	index    []uint32 // hash table with linear probing: the place of a record in arena plus one; 0 is free
	vehicles int
	dropped  int // size in bytes of the dropped records
}

const recordHeader = 5

func newPackedStates(size int) *packedStates {
	return &packedStates{
		seed: maphash.MakeSeed(), limit: min(size, bucketBytes), buckets: make([]bucket, max(1, size/bucketBytes)),
	}
}

func (p *packedStates) find(id vehicle.ID) (*bucket, uint64) {
	hash := maphash.String(p.seed, string(id))
	at, _ := bits.Mul64(hash, uint64(len(p.buckets)))
	return &p.buckets[at], hash
}

// get unpacks the state of a vehicle into s. If the vehicle is not in memory, ok is false.
func (p *packedStates) get(id vehicle.ID, s *vehicle.State) (ok bool) {
	b, hash := p.find(id)
	i := b.slot(id, hash)
	if i < 0 || b.index[i] == 0 {
		return false
	}
	r := b.arena[b.index[i]-1:]
	from := recordHeader + len(id)
	is, err := codec.DecodeState(r[from : from+int(binary.LittleEndian.Uint16(r[2:]))])
	if err != nil {
		return false // cannot happen; the stored state is read
	}
	*s = is
	return true
}

// put replaces the state of a vehicle.
func (p *packedStates) put(id vehicle.ID, s *vehicle.State) {
	p.buffer = codec.AppendState(p.buffer[:0], s)
	b, hash := p.find(id)
	size := recordHeader + len(id) + len(p.buffer)
	if 4*b.vehicles >= 3*len(b.index) {
		b.rebuild(p.seed, max(8, 2*len(b.index)), 0)
	}
	i := b.slot(id, hash)
	used := len(b.arena) + 4*len(b.index) - b.dropped + size
	if used > p.limit/4*3 && b.index[i] == 0 && rand.IntN(takes) != 0 {
		return
	}
	if at := b.index[i]; at != 0 {
		r := b.arena[at-1:]
		if size <= int(binary.LittleEndian.Uint16(r)) {
			binary.LittleEndian.PutUint16(r[2:], uint16(len(p.buffer)))
			copy(r[recordHeader+len(id):], p.buffer)
			return
		}
		b.dropped += int(binary.LittleEndian.Uint16(r))
		r[4] = 0
	} else {
		b.vehicles++
	}
	b.index[i] = uint32(len(b.arena)) + 1
	room := size + len(p.buffer)/16
	if need := len(b.arena) + room; need > cap(b.arena) { // append would leave a quarter unused
		b.arena = append(make([]byte, 0, need+need/8), b.arena...)
	}
	b.arena = binary.LittleEndian.AppendUint16(b.arena, uint16(room))
	b.arena = binary.LittleEndian.AppendUint16(b.arena, uint16(len(p.buffer)))
	b.arena = append(append(b.arena, byte(len(id))), id...)
	b.arena = append(append(b.arena, p.buffer...), p.buffer[:len(p.buffer)/16]...)
	switch {
	case used > p.limit:
		b.rebuild(p.seed, len(b.index), drops)
	case b.dropped > len(b.arena)/8:
		b.rebuild(p.seed, len(b.index), 0)
	}
}

// slot returns the place of a vehicle in the index, or the free place where it belongs. It is -1 if
// the bucket is empty.
func (b *bucket) slot(id vehicle.ID, hash uint64) int {
	if len(b.index) == 0 {
		return -1
	}
	i := int(hash) & (len(b.index) - 1)
	for ; b.index[i] != 0; i = (i + 1) & (len(b.index) - 1) {
		r := b.arena[b.index[i]-1:]
		if n := int(r[4]); n == len(id) && string(r[recordHeader:recordHeader+n]) == string(id) {
			break
		}
	}
	return i
}

// rebuild copies the bucket's vehicles into a new arena, with an index of the given length, a power of
// two. If drop is not 0, it drops one in drop of them at random.
func (b *bucket) rebuild(seed maphash.Seed, index, drop int) {
	old := b.arena
	*b = bucket{arena: make([]byte, 0, (len(old)-b.dropped)*9/8), index: make([]uint32, index)}
	for len(old) > 0 {
		room := int(binary.LittleEndian.Uint16(old))
		r := old[:room]
		old = old[room:]
		if r[4] == 0 || drop > 0 && rand.IntN(drop) == 0 {
			continue
		}
		id := vehicle.ID(r[recordHeader : recordHeader+int(r[4])])
		b.index[b.slot(id, maphash.String(seed, string(id)))] = uint32(len(b.arena)) + 1
		b.arena = append(b.arena, r...)
		b.vehicles++
	}
}
