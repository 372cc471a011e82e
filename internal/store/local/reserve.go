package local

import (
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// reserve is room for taking rights away after other programs have filled the disk: files whose
// blocks are allocated. No sync is needed: a file that a power cut removes is made again.
type reserve struct {
	fs    vfs.FS // not that of OnDiskFull, which would call draw while fill holds mu
	path  string
	mu    sync.Mutex // guards parts, the number of files
	parts int

	scarce atomic.Bool // only changes that take rights away are stored
	full   atomic.Bool // no checkpoint is stored
}

const (
	reserveDir = "reserve"
	partBytes  = 1 << 20
)

func (r *reserve) file(n int) string { return r.fs.PathJoin(r.path, strconv.Itoa(n)) }

func (r *reserve) held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts
}

func (r *reserve) fill(parts int) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts < parts {
		err = r.fs.MkdirAll(r.path, 0o700)
	}
	for err == nil && r.parts < parts {
		if err = r.allocate(r.file(r.parts)); err == nil {
			r.parts++
		}
	}
	return err
}

// The file may exist as a sparse copy, without blocks.
func (r *reserve) allocate(name string) error {
	f, err := r.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	end := []byte{0}
	if err = f.Preallocate(0, partBytes); err != nil && !errors.Is(err, syscall.ENOSPC) {
		end = make([]byte, partBytes) // the file system cannot preallocate, and may compress zeros
		rand.Read(end)
		err = nil
	}
	// A file of full size is not written again: some file systems overwrite nothing if full.
	if info, unknown := f.Stat(); err == nil && (unknown != nil || info.Size() != partBytes) {
		_, err = f.WriteAt(end, partBytes-int64(len(end)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = r.fs.Remove(name)
	}
	return err
}

func (r *reserve) draw() (drawn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if drawn = r.parts > 0; drawn {
		r.scarce.Store(true)
		r.full.Store(true)
		r.parts--
		_ = r.fs.Remove(r.file(r.parts)) // the write is tried again, and has the error
	}
	return drawn
}
