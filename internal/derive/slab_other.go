//go:build !linux

package derive

func newSlab() []byte { return make([]byte, slabBytes) }

func freeSlab([]byte) {}
