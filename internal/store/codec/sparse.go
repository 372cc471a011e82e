package codec

import "encoding/binary"

// What the rules remember of a vehicle is many numbers, most of them zero for
// most vehicles. A packed memory is its fields in order, little endian, cut into
// groups of eight bytes, the last one filled up with zeros: first a bit for each
// group, lowest bit of the first byte first, that says whether it is not all
// zero, then the groups that are not. Fields that are added at its end are zero in
// what was packed before, as long as the bits fill no more bytes than they did.

const sparseGroup = 8

// appendSparse packs a value.
func appendSparse[T any](b []byte, l *layout[T], v *T) []byte {
	groups := l.groups()
	bits := len(b)
	for range (groups + 7) / 8 {
		b = append(b, 0)
	}
	start := len(b)
	b = l.append(b, v)
	for (len(b)-start)%sparseGroup != 0 {
		b = append(b, 0)
	}
	kept := start
	for i := range groups {
		group := binary.LittleEndian.Uint64(b[start+i*sparseGroup:])
		if group != 0 {
			b[bits+i/8] |= 1 << (i % 8)
			binary.LittleEndian.PutUint64(b[kept:], group)
			kept += sparseGroup
		}
	}
	return b[:kept]
}

// readSparse unpacks a value.
func readSparse[T any](r *reader, l *layout[T], v *T) {
	groups := l.groups()
	bits := r.bytes((groups + 7) / 8)
	if bits == nil {
		return
	}
	var onStack [1 << 10]byte
	raw := onStack[:]
	if groups*sparseGroup > len(raw) {
		raw = make([]byte, groups*sparseGroup)
	}
	for i := range groups {
		if bits[i/8]&(1<<(i%8)) != 0 {
			copy(raw[i*sparseGroup:], r.bytes(sparseGroup))
		}
	}
	l.decode(raw[:l.size], v)
}
