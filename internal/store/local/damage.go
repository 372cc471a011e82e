package local

import (
	"context"
	"math/big"
)

// recordIterator iterates over a range of records, of an engine or of a damaged store.
type recordIterator interface {
	First() bool
	Next() bool
	Key() []byte
	ValueAndErr() ([]byte, error)
	Error() error
	Close() error
}

// newIterator returns an iterator over the keys in [from, to).
type newIterator func(from, to []byte) (recordIterator, error)

// unreadableError is an error of reading damaged files.
type unreadableError struct{ error }

// readable wraps err in an unreadableError if err means damage. A transient error says nothing
// about the files, so it is returned unchanged.
func readable(err error) error {
	if err == nil || isNotDamage(err) {
		return err
	}
	return unreadableError{err}
}

// readGood calls do for the records in a range of keys, up to the first record that cannot be read.
// It returns the last key that it read, or the parameter from if it read none. The key that do
// receives is valid until do returns.
func readGood(
	ctx context.Context, newIter newIterator, from, to []byte, do func(key, value []byte) error,
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
			return last, readable(err)
		}
		last = append(last[:0], it.Key()...)
		if err := do(last, value); err != nil {
			return last, err
		}
	}
	return last, readable(it.Error())
}

// keyBits is the maximum number of bits that follow the letter of a key. These are a hash.
const keyBits = 8 * hashBytes

// readableAfter finds the end of an unreadable run of keys, which is a block or a table and begins
// after the parameter key. It returns a key from which records can be read again, or nil if there
// is none before the parameter to. It searches in growing steps, and then by bisection. Because a
// read of a damaged block takes long, the search stops early. So it may skip good keys after the
// run, at most a 64th of the length of the run.
func readableAfter(newIter newIterator, key, to []byte) []byte {
	number := func(k []byte) *big.Int {
		b := make([]byte, hashBytes)
		copy(b, k[1:])
		return new(big.Int).SetBytes(b)
	}
	keyAt := func(n *big.Int) []byte { return n.FillBytes(make([]byte, 1+hashBytes)) }
	reads := func(n *big.Int) bool {
		k := keyAt(n)
		k[0] = key[0]
		it, err := newIter(k, to)
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
	first := number(key)
	low, step := first, big.NewInt(1)
	last := new(big.Int).Sub(new(big.Int).Lsh(step, keyBits), step)
	high := new(big.Int).Add(first, step)
	for !reads(high) {
		if high.Cmp(last) >= 0 {
			return nil
		}
		step = new(big.Int).Lsh(step, farther)
		if low, high = high, new(big.Int).Add(first, step); high.Cmp(last) > 0 {
			high = last
		}
	}
	for {
		gap := new(big.Int).Sub(high, low)
		if gap.Cmp(new(big.Int).Rsh(new(big.Int).Sub(high, first), precision)) <= 0 || gap.BitLen() <= 1 {
			break
		}
		if middle := new(big.Int).Add(low, gap.Rsh(gap, 1)); reads(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	k := keyAt(high)
	k[0] = key[0]
	return k
}
