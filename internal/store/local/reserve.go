package local

import (
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// reserve is room for taking rights away after another program has filled the disk: files of
// partBytes whose blocks are allocated. Each removed file makes room for one write that has failed,
// so that the other program gets at most the rest of a part.
type reserve struct {
	fs   vfs.FS // not that of OnDiskFull, whose writes wait for draw
	path string
	mu   sync.Mutex // guards held
	held []string
	none bool // it cannot be made, for another reason than a full disk
}

const (
	reserveDir = "reserve"
	partBytes  = 1 << 20
)

// A copy of the directory may have sparse parts, which get their blocks again.
func (r *reserve) open() {
	names, _ := r.fs.List(r.path) // there is none yet, or fill reports the error
	for _, n := range names {
		if _, err := strconv.Atoi(n); err == nil {
			_ = r.hold(r.fs.PathJoin(r.path, n)) // fill tries again
		}
	}
}

func (r *reserve) parts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

func (r *reserve) fill(parts int) error {
	if err := r.fs.MkdirAll(r.path, 0o700); err != nil {
		return err
	}
	for n := 0; r.parts() < parts; n++ {
		if err := r.hold(r.fs.PathJoin(r.path, strconv.Itoa(n))); err != nil {
			return err
		}
	}
	return nil
}

// No sync is needed: a part that a power cut removes is made again.
func (r *reserve) hold(name string) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.held, name) {
		return nil
	}
	f, err := r.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = r.fs.Remove(name)
			return
		}
		r.held = append(r.held, name)
	}()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end := []byte{0}
	switch err := f.Preallocate(0, partBytes); {
	case errors.Is(err, syscall.ENOSPC):
		return err
	case err != nil: // the file system cannot, and perhaps compresses
		end = make([]byte, partBytes)
		rand.Read(end)
	}
	if info.Size() < partBytes {
		_, err = f.WriteAt(end, partBytes-int64(len(end)))
	}
	return err
}

func (r *reserve) draw() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.held) - 1
	if last < 0 {
		return false
	}
	_ = r.fs.Remove(r.held[last]) // the write is tried again, and has the error
	r.held = r.held[:last]
	return true
}
