package derive

import "syscall"

// The memory is not Go's, whose collector would let garbage of the same size pile up. The first access to
// memory is half of the work of a start, and huge pages make it cheaper.
func newSlab() []byte {
	b, err := syscall.Mmap(-1, 0, slabBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return make([]byte, slabBytes)
	}
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	return b
}

// freeSlab does nothing for memory that make returned.
func freeSlab(b []byte) { _ = syscall.Munmap(b) }
