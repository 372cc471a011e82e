package derive

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/minio/highwayhash"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// packedStates holds the states of all vehicles of a partition in packed form, in memory without
// pointers. It grows by one bucket at a time (linear hashing), so that no sample waits long.
type packedStates struct {
	key     [highwayhash.Size]byte // so that nobody can choose vids that collide
	room    int                    // usual size in bytes of a bucket
	buckets []bucket
	bytes   atomic.Int64 // size of the records, except dropped ones

	mu    sync.Mutex // guards the fields below, because several goroutines load
	free  [][]byte   // blocks of rebuilt buckets
	slab  []byte     // the next blocks are its parts
	slabs [][]byte
}

const (
	// A bucket has about bucketBytes bytes, some 500 vehicles.
	bucketBytes = 256 << 10
	// A bucket grows by blocks of blockBytes bytes, so that it need not be copied. No record is
	// larger.
	blockBytes = 16 << 10
	// Blocks are parts of slabs. While there are at most slabLater buckets, blocks are slices that grow
	// instead, so that a small fleet takes little memory.
	slabBytes, slabLater = 4 << 20, 16
)

// bucket has a part of the states. A record in a block is its size and the length of its state, two
// bytes each, the length of the vid less 1, and 1 if the state has changed or isDropped, one byte
// each, the day of its newest sample in two, the vid, the packed state, and room for the state to
// grow. An empty state is the marker of a forgotten vehicle: it is stored and published until the
// vehicle is erased.
type bucket struct {
	blocks   [][]byte
	index    []uint32 // hash table with linear probing; 0 is free
	vehicles int
	used     int // size in bytes of the records
	dropped  int // size in bytes of the dropped ones
	changed  int // how many records have changed since the last checkpoint
}

const (
	recordHeader = 8
	isDropped    = 2
	usualRecord  = 512 // bytes
	// An entry of an index is the place of a record, its block * blockBytes + where it begins there + 1,
	// in placeBits, and above them a part of the hash.
	placeBits = 22
)

func tagOf(hash uint64) uint32 { return uint32(hash) >> placeBits }

// newPackedStates returns as many buckets of room bytes as are needed for bytes, but at least
// CheckpointCycle: then a vehicle that a split moves keeps its turn to be stored.
func newPackedStates(seed uint64, room, bytes int) *packedStates {
	p := &packedStates{room: room, buckets: make([]bucket, max(store.CheckpointCycle, 1+bytes/room))}
	binary.LittleEndian.PutUint64(p.key[:], seed)
	for i := range p.buckets {
		p.buckets[i] = newBucket(bytes / len(p.buckets) / usualRecord)
	}
	return p
}

// newBucket returns a bucket with an index for at least 1.5 times as many vehicles.
func newBucket(vehicles int) bucket {
	return bucket{index: make([]uint32, 1<<bits.Len(uint(2*vehicles+7)))}
}

func (b *bucket) record(entry uint32) []byte {
	place := entry & (1<<placeBits - 1)
	return b.blocks[(place-1)/blockBytes][(place-1)%blockBytes:]
}

// size, vidOf and stateOf return parts of the record with which r begins.
func size(r []byte) int     { return int(binary.LittleEndian.Uint16(r)) }
func vidOf(r []byte) []byte { return r[recordHeader : recordHeader+int(r[4])+1] }
func dayOf(r []byte) uint16 { return binary.LittleEndian.Uint16(r[6:]) }
func stateOf(r []byte) []byte {
	return r[recordHeader+int(r[4])+1:][:binary.LittleEndian.Uint16(r[2:])]
}

func (p *packedStates) find(id vehicle.ID) (at int, hash uint64) {
	hash = highwayhash.Sum64(unsafe.Slice(unsafe.StringData(string(id)), len(id)), p.key[:])
	mask := 1<<bits.Len(uint(len(p.buckets)-1)) - 1
	if at = int(hash>>32) & mask; at >= len(p.buckets) {
		at &= mask >> 1 // the bucket that will be split for it
	}
	return at, hash
}

// A vehicle without a state has the zero one.
func (p *packedStates) get(id vehicle.ID) (vehicle.State, error) {
	at, hash := p.find(id)
	b := &p.buckets[at]
	place := b.index[b.slot(id, hash)]
	if place == 0 || len(stateOf(b.record(place))) == 0 {
		return vehicle.State{}, nil
	}
	return codec.DecodeState(stateOf(b.record(place)))
}

// day is that of the newest sample. If a checkpoint has the state, changed is 0.
func (p *packedStates) set(id vehicle.ID, packed []byte, day uint16, changed byte) {
	p.split()
	p.insert(id, packed, day, changed)
}

func (p *packedStates) split() {
	for n := len(p.buckets); p.bytes.Load() > int64(n*p.room); n++ {
		at := n - 1<<(bits.Len(uint(n))-1)
		p.buckets = append(p.buckets, newBucket(p.buckets[at].vehicles/2))
		p.rebuild(at)
	}
}

// insert is like set, without a split of a bucket. Several goroutines may call it, each for other
// buckets.
func (p *packedStates) insert(id vehicle.ID, packed []byte, day uint16, changed byte) {
	at, hash := p.find(id)
	b := &p.buckets[at]
	i := b.slot(id, hash)
	if place := b.index[i]; place != 0 {
		r := b.record(place)
		b.changed += int(changed &^ r[5])
		changed |= r[5]
		if recordHeader+len(id)+len(packed) <= size(r) {
			r[5] = changed
			binary.LittleEndian.PutUint16(r[2:], uint16(len(packed)))
			binary.LittleEndian.PutUint16(r[6:], day)
			copy(r[recordHeader+len(id):], packed)
			return
		}
		b.dropped += size(r)
		p.bytes.Add(int64(-size(r)))
		r[5] = isDropped
	} else {
		b.vehicles++
		b.changed += int(changed)
	}
	slack := len(packed) / 16
	room := recordHeader + len(id) + len(packed) + slack
	b.used += room
	p.bytes.Add(int64(room))
	last := len(b.blocks) - 1
	if last < 0 || len(b.blocks[last])+room > blockBytes {
		b.blocks, last = append(b.blocks, p.block()), last+1
	}
	block := b.blocks[last]
	b.index[i] = tagOf(hash)<<placeBits | uint32(last*blockBytes+len(block)+1)
	block = binary.LittleEndian.AppendUint16(block, uint16(room))
	block = binary.LittleEndian.AppendUint16(block, uint16(len(packed)))
	block = append(block, byte(len(id)-1), changed)
	block = append(binary.LittleEndian.AppendUint16(block, day), id...)
	b.blocks[last] = append(append(block, packed...), packed[:slack]...)
	if b.dropped > b.used/8 || 4*b.vehicles > 3*len(b.index) {
		p.rebuild(at)
	}
}

func (p *packedStates) drop(at int, gone func(r []byte) bool) {
	b := &p.buckets[at]
	before := b.vehicles
	for r := range b.records {
		if gone(r) {
			b.changed, b.dropped, b.vehicles = b.changed-int(r[5]), b.dropped+size(r), b.vehicles-1
			p.bytes.Add(int64(-size(r)))
			r[5] = isDropped
		}
	}
	if b.vehicles < before {
		p.rebuild(at) // a free place in the index would hide the vehicles behind it
	}
}

func (p *packedStates) block() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free) - 1; n >= 0 {
		b := p.free[n]
		p.free = p.free[:n]
		return b
	}
	if len(p.slab) == 0 {
		if len(p.buckets) <= slabLater {
			return nil
		}
		p.slab = newSlab()
		p.slabs = append(p.slabs, p.slab)
	}
	b := p.slab[:0:blockBytes]
	p.slab = p.slab[blockBytes:]
	return b
}

// end frees the memory. No method may be called after it, and no record be read.
func (p *packedStates) end() {
	for _, slab := range p.slabs {
		freeSlab(slab)
	}
	p.buckets, p.slabs = nil, nil
}

// slot returns the place of a vehicle in the index, or the free place where it belongs.
func (b *bucket) slot(id vehicle.ID, hash uint64) int {
	i := int(hash) & (len(b.index) - 1)
	for tag := tagOf(hash); b.index[i] != 0; i = (i + 1) & (len(b.index) - 1) {
		if b.index[i]>>placeBits == tag && string(vidOf(b.record(b.index[i]))) == string(id) {
			break
		}
	}
	return i
}

// rebuild copies a bucket's vehicles to the buckets where they belong.
func (p *packedStates) rebuild(at int) {
	old := p.buckets[at]
	p.bytes.Add(int64(old.dropped - old.used))
	p.buckets[at] = newBucket(old.vehicles)
	for r := range old.records {
		p.insert(vehicle.ID(vidOf(r)), stateOf(r), dayOf(r), r[5])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, block := range old.blocks {
		p.free = append(p.free, block[:0])
	}
}

func (b *bucket) records(yield func(r []byte) bool) {
	for _, block := range b.blocks {
		for r := block; len(r) > 0; r = r[size(r):] {
			if r[5] != isDropped && !yield(r) {
				return
			}
		}
	}
}

// piece returns the entries of a piece of about size bytes of the checkpoint with a number, and from
// which bucket the next piece continues; done is set after the last one. A checkpoint has the records
// that have changed since the one before, and those in due buckets: every CheckpointCycle-th, or with
// full, all. They count as unchanged then. In due buckets, piece first drops records that are gone.
func (p *packedStates) piece(
	from, size int, number uint64, full bool, gone func(r []byte) bool,
) (b []byte, next int, done bool) {
	for next = from; next < len(p.buckets); next++ {
		if len(b) >= size {
			return b, next, false
		}
		is, due := &p.buckets[next], full || (uint64(next)-number)%store.CheckpointCycle == 0
		if due {
			p.drop(next, gone)
		} else if is.changed == 0 {
			continue
		}
		for r := range is.records {
			if r[5] != 0 || due {
				r[5] = 0
				b = store.AppendEntry(b, store.Entry{Vehicle: vehicle.ID(vidOf(r)), Day: dayOf(r), State: stateOf(r)})
			}
		}
		is.changed = 0
	}
	return b, next, true
}

func (p *packedStates) all(yield func(r []byte) bool) {
	for i := range p.buckets {
		for r := range p.buckets[i].records {
			if !yield(r) {
				return
			}
		}
	}
}

func (p *packedStates) count() (vehicles, changed int) {
	for i := range p.buckets {
		vehicles, changed = vehicles+p.buckets[i].vehicles, changed+p.buckets[i].changed
	}
	return vehicles, changed
}
