//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

// Numbers are read from memory as they are packed, so the machine must be little-endian.

package codec

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"reflect"
	"unsafe"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// A packed state is a varint, its newest event time in Unix milliseconds, and then a section for
// the numbers of [vehicle.State] itself and for each struct or array in it. Most numbers are zero,
// so a section is
//
//	byte     length of the outer bitmap
//	bitmap   a bit for each byte of the inner bitmap that is not zero
//	bitmap   these bytes: a bit for each number that is not zero, lowest bit of the first byte first
//	numbers  those that are not zero: a time as the varint of its distance to the time before it, a
//	         stretch of road too, a bool as nothing, and any other as its bytes, little endian
//
// No bit is lost, because verdicts depend on them. A number that is added at the end of a section
// is zero in states that were packed before.

type number struct {
	at    int
	mask  uint64 // of the number in the eight bytes from there
	bytes int    // as packed; 0 if it is a bool or a distance
	delta int    // of a time or a stretch: which number before it the distance is to; otherwise 0
}

const (
	toTime = iota + 1
	toStretch
)

const (
	innerBytes     = 64
	mostStateBytes = 4096
)

// padded has room for reading eight bytes at the last number of a state.
type padded struct {
	vehicle.State
	_ uint64
}

func (p *padded) memory() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)) }

var sections = sectionsOf(reflect.TypeFor[vehicle.State]())

// sectionsOf panics at anything but numbers of fixed size, bools, and structs and arrays of them.
func sectionsOf(state reflect.Type) [][]number {
	all := make([][]number, 1)
	for f := range state.Fields() {
		switch {
		case f.Name == "Time":
		case f.Type.Kind() == reflect.Struct || f.Type.Kind() == reflect.Array:
			all = append(all, numbersOf(nil, f.Type, int(f.Offset)))
		default:
			all[0] = numbersOf(all[0], f.Type, int(f.Offset))
		}
	}
	most := binary.MaxVarintLen64
	for _, numbers := range all {
		most += 1 + innerBytes/8 + innerBytes + binary.MaxVarintLen64*len(numbers)
		if most > mostStateBytes || len(numbers) > 8*innerBytes {
			panic("a state has too many numbers")
		}
	}
	return all
}

func numbersOf(all []number, t reflect.Type, at int) []number {
	switch t.Kind() {
	case reflect.Struct:
		for f := range t.Fields() {
			all = numbersOf(all, f.Type, at+int(f.Offset))
		}
		return all
	case reflect.Array:
		for i := range t.Len() {
			all = numbersOf(all, t.Elem(), at+i*int(t.Elem().Size()))
		}
		return all
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
	default:
		panic(fmt.Sprintf("%v in a stored value", t))
	}
	n := number{at: at, mask: 1<<(8*t.Size()) - 1, bytes: int(t.Size())}
	switch {
	case t == reflect.TypeFor[signal.UnixMilli]():
		n.bytes, n.delta = 0, toTime
	case t == reflect.TypeFor[vehicle.Stretch]():
		n.bytes, n.delta = 0, toStretch
	case t.Kind() == reflect.Bool:
		n.bytes = 0
	}
	return append(all, n)
}

func AppendState(b []byte, s *vehicle.State) []byte {
	from := padded{State: *s}
	memory := from.memory()
	var packed [mostStateBytes + 8]byte
	at := binary.PutVarint(packed[:], int64(s.Time))
	before := [...]uint64{toTime: uint64(s.Time), toStretch: 0}
	for _, numbers := range sections {
		var inner [innerBytes]byte
		for i := range numbers {
			n := &numbers[i]
			if binary.LittleEndian.Uint64(memory[n.at:])&n.mask != 0 {
				inner[i/8] |= 1 << (i % 8)
			}
		}
		length := at
		at++
		for i := 0; i < len(inner); i += 8 {
			if binary.LittleEndian.Uint64(inner[i:]) != 0 {
				at = length + 2 + i/8
			}
		}
		packed[length] = byte(at - length - 1)
		for i, set := range inner {
			if set != 0 {
				packed[length+1+i/8] |= 1 << (i % 8)
				packed[at] = set
				at++
			}
		}
		for i, set := range inner {
			for ; set != 0; set &= set - 1 {
				n := &numbers[8*i+bits.TrailingZeros8(set)]
				v := binary.LittleEndian.Uint64(memory[n.at:]) & n.mask
				if n.delta != 0 {
					at += binary.PutVarint(packed[at:], int64(v-before[n.delta]))
					before[n.delta] = v
					continue
				}
				binary.LittleEndian.PutUint64(packed[at:], v) // with zeros behind it
				at += n.bytes
			}
		}
	}
	return append(b, packed[:at]...)
}

// The error of DecodeState is [ErrNewer] for a number that this version does not know, or
// [ErrDamaged].
func DecodeState(body []byte) (vehicle.State, error) {
	if len(body) > mostStateBytes {
		return vehicle.State{}, ErrDamaged
	}
	var s padded
	memory := s.memory()
	r := reader{b: body}
	s.Time = signal.UnixMilli(r.varint())
	before := [...]uint64{toTime: uint64(s.Time), toStretch: 0}
	for _, numbers := range sections {
		var inner [innerBytes]byte
		for i, set := range r.bytes(int(r.byte())) {
			for ; set != 0 && i < innerBytes/8; set &= set - 1 {
				inner[8*i+bits.TrailingZeros8(set)] = r.byte()
			}
			r.short = r.short || set != 0
		}
		for i, set := range inner {
			for ; set != 0; set &= set - 1 {
				place := 8*i + bits.TrailingZeros8(set)
				if place >= len(numbers) {
					return vehicle.State{}, ErrNewer
				}
				n, v := &numbers[place], uint64(1)
				switch {
				case n.delta != 0:
					v = before[n.delta] + uint64(r.varint())
					before[n.delta] = v
				case n.bytes > 0 && len(r.b) >= 8:
					v = binary.LittleEndian.Uint64(r.b) & n.mask
					r.b = r.b[n.bytes:]
				case n.bytes > 0:
					v = 0
					for i, c := range r.bytes(n.bytes) {
						v |= uint64(c) << (8 * i)
					}
				}
				is := binary.LittleEndian.Uint64(memory[n.at:])
				binary.LittleEndian.PutUint64(memory[n.at:], is&^n.mask|v)
			}
		}
	}
	if r.short || len(r.b) != 0 || int(s.Way.Count) > vehicle.WaySteps {
		return vehicle.State{}, ErrDamaged
	}
	return s.State, nil
}
