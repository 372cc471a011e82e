package full

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"carstate/torture/row"
)

// ballast is a file that takes all the space of a file system, and again what is
// freed, until it is removed.
type ballast struct {
	file *os.File
	stop func()
	once sync.Once
}

// fill returns once the file system is full.
func fill(name string) (*ballast, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	b := &ballast{file: f, stop: func() {}}
	if err := b.take(); err != nil {
		b.remove()
		return nil, err
	}
	b.stop = row.Every(context.Background(), 2*time.Millisecond, func() { _ = b.take() }) // what cannot be written is not free
	return b, nil
}

// take writes until nothing more can be written.
func (b *ballast) take() error {
	chunk := make([]byte, 1<<20)
	for {
		n, err := b.file.Write(chunk)
		switch {
		case errors.Is(err, syscall.ENOSPC) && len(chunk) == 1:
			return nil
		case errors.Is(err, syscall.ENOSPC):
			if n == 0 {
				chunk = chunk[:max(1, len(chunk)/16)]
			}
		case err != nil:
			return err
		}
	}
}

// remove gives the space back.
func (b *ballast) remove() {
	b.once.Do(func() {
		b.stop()
		os.Remove(b.file.Name())
		b.file.Close()
	})
}
