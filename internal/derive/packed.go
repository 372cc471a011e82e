package derive

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// packedStates holds the states of all vehicles of a partition in packed form, in memory without
// pointers. It grows by one bucket at a time (linear hashing), so that no sample waits long.
type packedStates struct {
	seed    maphash.Seed
	room    int // usual size in bytes of a bucket
	buckets []bucket
	bytes   int // size of the records, except dropped ones
	changed int // how many records take would return
	buffer  []byte
}

// A bucket has about bucketBytes bytes, some 500 vehicles. A larger one would take longer to rebuild.
const bucketBytes = 256 << 10

// bucket is a part of the memory. A record in the arena is its size and the length of its state, two
// bytes each, the length of the vid and whether the state has changed, one byte each, the vid, the
// packed state, and room for the state to grow. The vid of a dropped record has length 0.
type bucket struct {
	arena    []byte
	index    []uint32 // hash table with linear probing: the place of a record in arena plus one; 0 is free
	vehicles int
	dropped  int // size in bytes of the dropped records
	changed  int // how many records have changed
}

const recordHeader = 6

func newPackedStates(room int) *packedStates {
	return &packedStates{seed: maphash.MakeSeed(), room: room, buckets: []bucket{newBucket(0, 0)}}
}

// newBucket returns a bucket with room for bytes, and for 1.5 times as many vehicles at least.
func newBucket(room, vehicles int) bucket {
	return bucket{arena: make([]byte, 0, room), index: make([]uint32, 1<<bits.Len(uint(2*vehicles+7)))}
}

// size, vidOf and stateOf return parts of the record with which r begins.
func size(r []byte) int     { return int(binary.LittleEndian.Uint16(r)) }
func vidOf(r []byte) []byte { return r[recordHeader : recordHeader+int(r[4])] }
func stateOf(r []byte) []byte {
	return r[recordHeader+int(r[4]):][:binary.LittleEndian.Uint16(r[2:])]
}

// find returns the number of a vehicle's bucket.
func (p *packedStates) find(id vehicle.ID) (at int, hash uint64) {
	hash = maphash.String(p.seed, string(id))
	mask := 1<<bits.Len(uint(len(p.buckets)-1)) - 1
	if at = int(hash>>32) & mask; at >= len(p.buckets) {
		at &= mask >> 1 // the bucket that will be split for it
	}
	return at, hash
}

// get unpacks the state of a vehicle. A vehicle without one has the zero state.
func (p *packedStates) get(id vehicle.ID) (vehicle.State, error) {
	at, hash := p.find(id)
	b := &p.buckets[at]
	place := b.index[b.slot(id, hash)]
	if place == 0 {
		return vehicle.State{}, nil
	}
	return codec.DecodeState(stateOf(b.arena[place-1:]))
}

// put packs the changed state of a vehicle.
func (p *packedStates) put(id vehicle.ID, s *vehicle.State) {
	p.buffer = codec.AppendState(p.buffer[:0], s)
	p.set(id, p.buffer, 1)
}

// set replaces the packed state of a vehicle. The parameter changed is 0 if this state is stored.
func (p *packedStates) set(id vehicle.ID, packed []byte, changed byte) {
	if n := len(p.buckets); p.bytes > n*p.room {
		at := n - 1<<(bits.Len(uint(n))-1)
		half := len(p.buckets[at].arena) / 2
		p.buckets = append(p.buckets, newBucket(half*9/8, p.buckets[at].vehicles/2))
		p.rebuild(at, half)
	}
	at, hash := p.find(id)
	b := &p.buckets[at]
	i := b.slot(id, hash)
	was := byte(0) // whether the record has changed
	if place := b.index[i]; place != 0 {
		r := b.arena[place-1:]
		was = r[5]
		r[5] |= changed
		if recordHeader+len(id)+len(packed) <= size(r) {
			b.changed, p.changed = b.changed+int(r[5]-was), p.changed+int(r[5]-was)
			binary.LittleEndian.PutUint16(r[2:], uint16(len(packed)))
			copy(r[recordHeader+len(id):], packed)
			return
		}
		b.dropped, p.bytes = b.dropped+size(r), p.bytes-size(r)
		r[4] = 0
	} else {
		b.vehicles++
	}
	changed |= was
	b.changed, p.changed = b.changed+int(changed-was), p.changed+int(changed-was)
	b.index[i] = uint32(len(b.arena)) + 1
	slack := len(packed) / 16
	room := recordHeader + len(id) + len(packed) + slack
	p.bytes += room
	if need := len(b.arena) + room; need > cap(b.arena) { // append would leave a quarter unused
		b.arena = append(make([]byte, 0, need+need/8), b.arena...)
	}
	b.arena = binary.LittleEndian.AppendUint16(b.arena, uint16(room))
	b.arena = binary.LittleEndian.AppendUint16(b.arena, uint16(len(packed)))
	b.arena = append(append(b.arena, byte(len(id)), changed), id...)
	b.arena = append(append(b.arena, packed...), packed[:slack]...)
	if b.dropped > len(b.arena)/8 || 4*b.vehicles > 3*len(b.index) {
		p.rebuild(at, len(b.arena)-b.dropped)
	}
}

// slot returns the place of a vehicle in the index, or the free place where it belongs.
func (b *bucket) slot(id vehicle.ID, hash uint64) int {
	i := int(hash) & (len(b.index) - 1)
	for ; b.index[i] != 0; i = (i + 1) & (len(b.index) - 1) {
		if string(vidOf(b.arena[b.index[i]-1:])) == string(id) {
			break
		}
	}
	return i
}

// rebuild copies a bucket's vehicles to the buckets where they belong. About room bytes of them stay.
func (p *packedStates) rebuild(at, room int) {
	old := p.buckets[at]
	p.bytes, p.changed = p.bytes-len(old.arena)+old.dropped, p.changed-old.changed
	p.buckets[at] = newBucket(room*9/8, old.vehicles)
	for r := old.arena; len(r) > 0; r = r[size(r):] {
		if r[4] != 0 {
			p.set(vehicle.ID(vidOf(r)), stateOf(r), r[5])
		}
	}
}

// take returns copies of changed states, which count as stored then: those of the buckets from a
// number on, until there are at least as many as the parameter least says. The result next is the
// number of the following bucket.
func (p *packedStates) take(from, least int) (changed map[vehicle.ID][]byte, next int) {
	changed = make(map[vehicle.ID][]byte)
	for next = from; next < len(p.buckets) && len(changed) < least; next++ {
		b := &p.buckets[next]
		for r := b.arena; b.changed > 0; r = r[size(r):] {
			if r[4] != 0 && r[5] != 0 {
				changed[vehicle.ID(vidOf(r))] = bytes.Clone(stateOf(r))
				r[5] = 0
				b.changed, p.changed = b.changed-1, p.changed-1
			}
		}
	}
	return changed, next
}
