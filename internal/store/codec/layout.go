//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

// The build constraint lists the little-endian architectures, because numbers are stored as
// they are in memory. On any other architecture the build fails, because layout is undefined.

package codec

import (
	"fmt"
	"reflect"
	"unsafe"
)

// layout describes the memory of T, a struct of numbers. It is used to pack the fields in order,
// little endian, with the same result as encoding/binary, but without reflection on each value. A
// new field in T needs no change here.
type layout[T any] struct {
	size  int   // of a packed value, in bytes
	runs  []run // in the order of the fields, without padding
	bools []int // offsets of the bools in a packed value
}

// run is a range of a struct's memory that has no padding and is packed unchanged. The field at is
// the offset of the range and n its length, both in bytes.
type run struct{ at, n int }

// layoutOf returns the layout of T. It panics if T contains anything but numbers of fixed size,
// bools, and structs and arrays of them.
func layoutOf[T any]() *layout[T] {
	l := new(layout[T])
	l.add(reflect.TypeFor[T](), 0)
	return l
}

func (l *layout[T]) add(t reflect.Type, at int) {
	switch t.Kind() {
	case reflect.Struct:
		for f := range t.Fields() {
			l.add(f.Type, at+int(f.Offset))
		}
		return
	case reflect.Array:
		for i := range t.Len() {
			l.add(t.Elem(), at+i*int(t.Elem().Size()))
		}
		return
	case reflect.Bool:
		l.bools = append(l.bools, l.size)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
	default:
		panic(fmt.Sprintf("%v in a stored value", t))
	}
	n := int(t.Size())
	l.size += n
	if last := len(l.runs) - 1; last >= 0 && l.runs[last].at+l.runs[last].n == at {
		l.runs[last].n += n
		return
	}
	l.runs = append(l.runs, run{at, n})
}

// groups returns the number of 8-byte groups into which a packed value is divided. The last group
// may be padded with zeros.
func (l *layout[T]) groups() int { return (l.size + sparseGroup - 1) / sparseGroup }

func (l *layout[T]) append(b []byte, v *T) []byte {
	memory := memoryOf(v)
	for _, r := range l.runs {
		b = append(b, memory[r.at:r.at+r.n]...)
	}
	return b
}

// decode unpacks raw into v. The length of raw must be l.size. decode may change raw.
func (l *layout[T]) decode(raw []byte, v *T) {
	for _, at := range l.bools {
		if raw[at] != 0 {
			raw[at] = 1 // a Go bool has no other true value in memory
		}
	}
	memory := memoryOf(v)
	for _, r := range l.runs {
		raw = raw[copy(memory[r.at:r.at+r.n], raw):]
	}
}

// memoryOf returns the memory of v as bytes. A type that has a layout contains no pointer.
func memoryOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
