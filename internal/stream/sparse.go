package stream

import "encoding/binary"

// What the rules remember of a vehicle is many numbers, most of them zero for
// most vehicles. A packed memory is its fields in order, little endian, cut into
// groups of eight bytes, the last one filled up with zeros: first a bit for each
// group, lowest bit of the first byte first, that says whether it is not all
// zero, then the groups that are not.

const sparseGroup = 8

// appendSparse packs a value of fixed size.
func appendSparse(b []byte, v any) []byte {
	groups := (binary.Size(v) + sparseGroup - 1) / sparseGroup
	bits := len(b)
	b = append(b, make([]byte, (groups+7)/8)...)
	start := len(b)
	b, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic(err) // the type has no fixed size
	}
	for (len(b)-start)%sparseGroup != 0 {
		b = append(b, 0)
	}
	kept := start
	for i := range groups {
		group := b[start+i*sparseGroup:][:sparseGroup]
		if binary.LittleEndian.Uint64(group) != 0 {
			b[bits+i/8] |= 1 << (i % 8)
			kept += copy(b[kept:], group)
		}
	}
	return b[:kept]
}

// sparse unpacks into a pointer to a value of fixed size.
func (r *reader) sparse(v any) {
	size := binary.Size(v)
	groups := (size + sparseGroup - 1) / sparseGroup
	bits := r.bytes((groups + 7) / 8)
	if bits == nil {
		return
	}
	raw := make([]byte, groups*sparseGroup)
	for i := range groups {
		if bits[i/8]&(1<<(i%8)) != 0 {
			copy(raw[i*sparseGroup:], r.bytes(sparseGroup))
		}
	}
	if _, err := binary.Decode(raw[:size], binary.LittleEndian, v); err != nil {
		panic(err) // the type has no fixed size
	}
}
