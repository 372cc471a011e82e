package stream

import "encoding/binary"

// What the rules remember of a vehicle is many numbers, most of them zero for
// most vehicles. A packed memory is its fields in order, little endian, cut into
// groups of eight bytes: for every eight groups one byte of which bit i says
// that group i is not all zero, then those groups.

const sparseGroup = 8

// appendSparse packs a value of fixed size.
func appendSparse(b []byte, v any) []byte {
	var room [2048]byte
	raw, err := binary.Append(room[:0], binary.LittleEndian, v)
	if err != nil {
		panic(err) // the type has no fixed size
	}
	for len(raw)%sparseGroup != 0 {
		raw = append(raw, 0)
	}
	for len(raw) > 0 {
		at := len(b)
		b = append(b, 0)
		for i := 0; i < 8 && len(raw) > 0; i++ {
			if group := raw[:sparseGroup]; binary.LittleEndian.Uint64(group) != 0 {
				b[at] |= 1 << i
				b = append(b, group...)
			}
			raw = raw[sparseGroup:]
		}
	}
	return b
}

// sparse unpacks into a pointer to a value of fixed size.
func (r *reader) sparse(v any) {
	size := binary.Size(v)
	padded := (size + sparseGroup - 1) / sparseGroup * sparseGroup
	var room [2048]byte
	raw := append(room[:0], make([]byte, padded)...)
	for at := 0; at < padded && !r.short; {
		var present byte
		if p := r.bytes(1); p != nil {
			present = p[0]
		}
		for i := 0; i < 8 && at < padded; i++ {
			if present&(1<<i) != 0 {
				copy(raw[at:], r.bytes(sparseGroup))
			}
			at += sparseGroup
		}
	}
	if _, err := binary.Decode(raw[:size], binary.LittleEndian, v); err != nil {
		panic(err) // the type has no fixed size
	}
}
