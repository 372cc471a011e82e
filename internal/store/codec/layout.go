//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

// The constraint names the little-endian machines: numbers are stored as they lie in
// memory. On any other machine the build fails, because nothing defines layout.

package codec

import (
	"fmt"
	"reflect"
	"unsafe"
)

// layout knows how a T, a struct of numbers, lies in memory, so that its fields
// can be packed in order, little endian, as encoding/binary does, without
// looking at the type for each value. A new field needs no change here.
type layout[T any] struct {
	size  int   // packed, in bytes
	runs  []run // in the order of the fields, without the gaps between them
	bools []int // where in a packed value they are
}

// run is a piece of memory that is packed as it is.
type run struct{ at, n int }

// layoutOf looks at a type once. It panics if that is not made of numbers of
// fixed size.
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

// groups is how many groups a packed value fills.
func (l *layout[T]) groups() int { return (l.size + sparseGroup - 1) / sparseGroup }

// append packs a value.
func (l *layout[T]) append(b []byte, v *T) []byte {
	memory := memoryOf(v)
	for _, r := range l.runs {
		b = append(b, memory[r.at:r.at+r.n]...)
	}
	return b
}

// decode unpacks a value of the right size, which it may change.
func (l *layout[T]) decode(raw []byte, v *T) {
	for _, at := range l.bools {
		if raw[at] != 0 {
			raw[at] = 1 // in memory no bool is anything else
		}
	}
	memory := memoryOf(v)
	for _, r := range l.runs {
		raw = raw[copy(memory[r.at:r.at+r.n], raw):]
	}
}

// memoryOf is the value itself, as bytes. Nothing in a T that has a layout is a
// pointer.
func memoryOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
