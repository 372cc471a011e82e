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
	free    [][]byte // blocks of rebuilt buckets
	bytes   int      // size of the records, except dropped ones
	changed int      // how many records take would return
	buffer  []byte
}

const (
	// A bucket has about bucketBytes bytes, some 500 vehicles. A larger one would take longer to
	// rebuild.
	bucketBytes = 256 << 10
	// A bucket grows by blocks of blockBytes bytes, so that it need not be copied. No record is
	// larger.
	blockBytes = 16 << 10
)

// bucket is a part of the memory. A record in a block is its size and the length of its state, two
// bytes each, the length of the vid and whether the state has changed, one byte each, the vid, the
// packed state, and room for the state to grow. The vid of a dropped record has length 0.
type bucket struct {
	blocks   [][]byte
	index    []uint32 // hash table with linear probing: a record's block * blockBytes + place + 1; 0 is free
	vehicles int
	used     int // size in bytes of the records
	dropped  int // size in bytes of the dropped ones
	changed  int // how many records have changed
}

const recordHeader = 6

func newPackedStates(room int) *packedStates {
	return &packedStates{seed: maphash.MakeSeed(), room: room, buckets: []bucket{newBucket(0)}}
}

// newBucket returns a bucket with an index for at least 1.5 times as many vehicles.
func newBucket(vehicles int) bucket {
	return bucket{index: make([]uint32, 1<<bits.Len(uint(2*vehicles+7)))}
}

func (b *bucket) record(place uint32) []byte {
	return b.blocks[(place-1)/blockBytes][(place-1)%blockBytes:]
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
	return codec.DecodeState(stateOf(b.record(place)))
}

// put packs the changed state of a vehicle.
func (p *packedStates) put(id vehicle.ID, s *vehicle.State) {
	p.buffer = codec.AppendState(p.buffer[:0], s)
	p.set(id, p.buffer, 1)
}

// set replaces the packed state of a vehicle. If it is stored, changed is 0.
func (p *packedStates) set(id vehicle.ID, packed []byte, changed byte) {
	if n := len(p.buckets); p.bytes > n*p.room {
		at := n - 1<<(bits.Len(uint(n))-1)
		p.buckets = append(p.buckets, newBucket(p.buckets[at].vehicles/2))
		p.rebuild(at)
	}
	at, hash := p.find(id)
	b := &p.buckets[at]
	i := b.slot(id, hash)
	was := byte(0) // whether the record has changed
	if place := b.index[i]; place != 0 {
		r := b.record(place)
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
	slack := len(packed) / 16
	room := recordHeader + len(id) + len(packed) + slack
	b.used, p.bytes = b.used+room, p.bytes+room
	last := len(b.blocks) - 1
	if last < 0 || len(b.blocks[last])+room > blockBytes {
		b.blocks, last = append(b.blocks, p.block()), last+1
	}
	block := b.blocks[last]
	b.index[i] = uint32(last*blockBytes+len(block)) + 1
	block = binary.LittleEndian.AppendUint16(block, uint16(room))
	block = binary.LittleEndian.AppendUint16(block, uint16(len(packed)))
	block = append(append(block, byte(len(id)), changed), id...)
	b.blocks[last] = append(append(block, packed...), packed[:slack]...)
	if b.dropped > b.used/8 || 4*b.vehicles > 3*len(b.index) {
		p.rebuild(at)
	}
}

// drop removes the state of a vehicle.
func (p *packedStates) drop(id vehicle.ID) {
	at, hash := p.find(id)
	b := &p.buckets[at]
	place := b.index[b.slot(id, hash)]
	if place == 0 {
		return
	}
	r := b.record(place)
	b.changed, p.changed = b.changed-int(r[5]), p.changed-int(r[5])
	b.dropped, p.bytes, b.vehicles = b.dropped+size(r), p.bytes-size(r), b.vehicles-1
	r[4] = 0
	p.rebuild(at) // a free place in the index would hide the vehicles behind it
}

// block returns an empty block.
func (p *packedStates) block() []byte {
	n := len(p.free) - 1
	if n < 0 {
		return make([]byte, 0, blockBytes)
	}
	b := p.free[n]
	p.free = p.free[:n]
	return b
}

// slot returns the place of a vehicle in the index, or the free place where it belongs.
func (b *bucket) slot(id vehicle.ID, hash uint64) int {
	i := int(hash) & (len(b.index) - 1)
	for ; b.index[i] != 0; i = (i + 1) & (len(b.index) - 1) {
		if string(vidOf(b.record(b.index[i]))) == string(id) {
			break
		}
	}
	return i
}

// rebuild copies a bucket's vehicles to the buckets where they belong.
func (p *packedStates) rebuild(at int) {
	old := p.buckets[at]
	p.bytes, p.changed = p.bytes-old.used+old.dropped, p.changed-old.changed
	p.buckets[at] = newBucket(old.vehicles)
	for _, block := range old.blocks {
		for r := block; len(r) > 0; r = r[size(r):] {
			if r[4] != 0 {
				p.set(vehicle.ID(vidOf(r)), stateOf(r), r[5])
			}
		}
		p.free = append(p.free, block[:0])
	}
}

// take returns copies of changed states, which count as stored then: those of the buckets from a
// number on, until there are as many as least. next is the number of the following bucket.
func (p *packedStates) take(from, least int) (changed map[vehicle.ID][]byte, next int) {
	changed = make(map[vehicle.ID][]byte)
	for next = from; next < len(p.buckets) && len(changed) < least; next++ {
		b := &p.buckets[next]
		for i := 0; b.changed > 0; i++ {
			for r := b.blocks[i]; len(r) > 0; r = r[size(r):] {
				if r[4] != 0 && r[5] != 0 {
					changed[vehicle.ID(vidOf(r))] = bytes.Clone(stateOf(r))
					r[5] = 0
					b.changed, p.changed = b.changed-1, p.changed-1
				}
			}
		}
	}
	return changed, next
}
