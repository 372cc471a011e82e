package codec

import "encoding/binary"

// The rules keep many numbers for each vehicle. For most vehicles, most of these numbers are zero.
// The packed form holds the fields in order, little endian, padded with zeros and divided into
// groups of eight bytes. It begins with a bitmap that has one bit for each group, lowest bit of the
// first byte first. The bit of a group is set if a byte of the group is not zero. After the bitmap,
// the packed form holds only the groups whose bit is set. If fields are added at the end of the
// struct, they are zero in values that were packed before, as long as the length of the bitmap
// stays the same.

const sparseGroup = 8

// appendSparse appends v to b in a packed form that leaves out groups of 8 zero bytes.
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

// readSparse reads from r a value that appendSparse has written, and unpacks it into v. If r is too
// short, r.short is set, and v must not be used.
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
