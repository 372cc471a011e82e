package damage

import (
	"bytes"
	"errors"
	"math/big"
	"syscall"
	"testing"
)

// broken is an iterator over all keys from first on. Reading fails for the keys
// from bad up to, but not including, good.
type broken struct {
	first, bad, good []byte
	err              error
}

func (b *broken) First() bool {
	if bytes.Compare(b.first, b.bad) >= 0 && bytes.Compare(b.first, b.good) < 0 {
		b.err = errors.New("damaged")
	}
	return b.err == nil
}

func (b *broken) Next() bool                   { return false }
func (b *broken) Key() []byte                  { return b.first }
func (b *broken) ValueAndErr() ([]byte, error) { return nil, b.err }
func (b *broken) Error() error                 { return b.err }
func (b *broken) Close() error                 { return nil }

// TestReadableAfter checks that a readable key is found after damage of many sizes. The search may
// skip at most one good key for every 16 damaged ones.
func TestReadableAfter(t *testing.T) {
	key := func(n *big.Int) []byte { return append([]byte{'S'}, n.FillBytes(make([]byte, TailBytes))...) }
	begin := big.NewInt(1_000_000)
	for bits := range 8*TailBytes - 1 {
		size := new(big.Int).Lsh(big.NewInt(1), uint(bits))
		end := new(big.Int).Add(begin, size)
		open := func(from, _ []byte) (Iterator, error) {
			return &broken{first: from, bad: key(begin), good: key(end)}, nil
		}
		got := ReadableAfter(open, key(begin), []byte{'S' + 1})
		if got == nil || got[0] != 'S' {
			t.Fatalf("2^%d damaged keys: got %x, want a key", bits, got)
		}
		skipped := new(big.Int).Sub(new(big.Int).SetBytes(got[1:]), end)
		if most := size.Rsh(size, 4); skipped.Sign() < 0 || skipped.Cmp(most) > 0 {
			t.Errorf("2^%d damaged keys: got %d good keys skipped, want 0 to %d", bits, skipped, most)
		}
	}
	all := func(from, _ []byte) (Iterator, error) {
		return &broken{first: from, bad: []byte{'S'}, good: []byte{'S' + 1}}, nil
	}
	if got := ReadableAfter(all, key(begin), []byte{'S' + 1}); got != nil {
		t.Errorf("nothing is readable: got %x, want none", got)
	}
}

// TestReadGood_Errors checks that an unknown error of opening an iterator means damage, and that an
// I/O error of the device or a lack of file descriptors does not.
func TestReadGood_Errors(t *testing.T) {
	for err, want := range map[error]bool{errors.New("bad block"): true, syscall.EIO: false, syscall.EMFILE: false} {
		open := func(_, _ []byte) (Iterator, error) { return nil, unreadable(err) }
		_, got := ReadGood(t.Context(), open, []byte{'S'}, []byte{'T'}, nil)
		if IsUnreadable(got) != want || got == nil {
			t.Errorf("%v: got %v, want damage %v", err, got, want)
		}
	}
}
