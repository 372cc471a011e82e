// Package damage reads what can be read of a Pebble store whose files are damaged. It must not know
// what the records hold.
package damage

import (
	"context"
	"errors"
	"math/big"
	"syscall"
)

// Iterator iterates over the records in a range of keys.
type Iterator interface {
	First() bool
	Next() bool
	Key() []byte
	ValueAndErr() ([]byte, error)
	Error() error
	Close() error
}

// NewIterator returns an iterator over the keys in [from, to).
type NewIterator func(from, to []byte) (Iterator, error)

// unreadableError is an error of reading damaged files.
type unreadableError struct{ error }

// IsUnreadable reports whether err is an error of [ReadGood] whose cause is damage of the files.
func IsUnreadable(err error) bool {
	_, ok := errors.AsType[unreadableError](err)
	return ok
}

// unreadable wraps err in an unreadableError if err means that files are damaged. It returns any
// other error unchanged, such as a lack of memory.
func unreadable(err error) error {
	if err == nil || IsNot(err) {
		return err
	}
	return unreadableError{err}
}

// IsNot reports whether err has another cause than damage of the files: the device has reported an
// I/O error, there are too many open files or too little memory, or this process may not read the
// files. Such an error says nothing about the content of the files.
func IsNot(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EPERM, syscall.EIO,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ReadGood calls do for the records in a range of keys, up to the first record that cannot be read.
// It also ends if do returns an error, which it returns, or if ctx ends. last is the last key that
// it read, or a copy of from if it read none. The error is nil if all records were read.
// [IsUnreadable] reports whether it is due to damage. The key that do receives is valid until do
// returns.
func ReadGood(
	ctx context.Context, newIter NewIterator, from, to []byte, do func(key, value []byte) error,
) (last []byte, err error) {
	last = append(last, from...)
	it, err := newIter(from, to)
	if err != nil {
		return last, err
	}
	defer func() { _ = it.Close() }() // its error was read
	for ok := it.First(); ok; ok = it.Next() {
		if ctx.Err() != nil {
			return last, ctx.Err()
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return last, unreadable(err)
		}
		last = append(last[:0], it.Key()...)
		if err := do(last, value); err != nil {
			return last, err
		}
	}
	return last, unreadable(it.Error())
}

// TailBytes is the length in bytes of the longest keys, without their first byte.
const TailBytes = 16

// ReadableAfter finds where the records become readable again after damage. Damage makes all keys
// of a block or of a table unreadable. key is the last key that was read before the damage, and the
// search ends at to. The result is a key from which records can be read again, or nil if there is
// none. ReadableAfter tries keys at growing distances until a read succeeds, and then bisects. It
// does not search for the exact end of the damage, because a read of a damaged block takes long. So
// it may also skip some good keys after the damage, in at most a 64th of the range that it skips.
func ReadableAfter(newIter NewIterator, key, to []byte) []byte {
	first := new(big.Int).SetBytes(append(key[1:len(key):len(key)], make([]byte, 1+TailBytes-len(key))...))
	// All other numbers are distances from the key first. The last key is at the distance rest.
	last := new(big.Int).Lsh(big.NewInt(1), 8*TailBytes)
	rest := last.Sub(last, big.NewInt(1)).Sub(last, first)
	keyAt := func(n *big.Int) []byte {
		k := new(big.Int).Add(first, n).FillBytes(make([]byte, 1+TailBytes))
		k[0] = key[0]
		return k
	}
	reads := func(n *big.Int) bool {
		it, err := newIter(keyAt(n), to)
		if err != nil {
			return false
		}
		defer func() { _ = it.Close() }() // its error was read
		if it.First() {
			_, err = it.ValueAndErr()
		}
		return err == nil && it.Error() == nil
	}
	const farther, precision = 4, 6 // bits
	low, high := new(big.Int), big.NewInt(1)
	for !reads(high) {
		if high.Cmp(rest) >= 0 {
			return nil
		}
		if low, high = high, new(big.Int).Lsh(high, farther); high.Cmp(rest) > 0 {
			high = rest
		}
	}
	for {
		gap := new(big.Int).Sub(high, low)
		if gap.Cmp(new(big.Int).Rsh(high, precision)) <= 0 || gap.BitLen() <= 1 {
			return keyAt(high)
		}
		if middle := gap.Add(low, gap.Rsh(gap, 1)); reads(middle) {
			high = middle
		} else {
			low = middle
		}
	}
}
