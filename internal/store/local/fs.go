package local

import (
	"context"
	"errors"
	"hash/crc32"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
)

func onDisk(fs vfs.FS) bool { return vfs.Root(fs) == vfs.Root(vfs.Default) }

// Pebble would end the process after an error of its write-ahead log.
type haltingFS struct {
	vfs.FS
	failWrites func(error)
	dir        *dataDir
	backOff    *atomic.Bool    // the next table is created after a pause
	cut        context.Context // ends when Cut is called, and then ends the pause
}

const tableBackoff = time.Second // Pebble itself retries to write a table at once.

const logFiles vfs.DiskWriteCategory = "pebble-wal"

// The blocked goroutine may hold locks of Pebble, so even a read may block, too.
func (fs *haltingFS) halt(err error) {
	if err != nil {
		fs.failWrites(err)
		select {}
	}
}

func (fs *haltingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") && fs.backOff.Swap(false) {
		_ = periodic.Pause(fs.cut, tableBackoff) // the engine closes
	}
	f, err := fs.FS.Create(name, category)
	if base := fs.PathBase(name); err == nil && strings.HasPrefix(base, "MANIFEST-") {
		return &manifestFile{File: f, dir: fs.dir, is: manifest{Name: base}}, nil
	}
	if category != logFiles {
		return f, err
	}
	fs.halt(err)
	return haltingFile{f, fs}, nil
}

// Pebble would overwrite an old log, whose remains could still name a forgotten vehicle.
func (fs *haltingFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	// It may be gone already, because it named a forgotten vehicle.
	if err := fs.Remove(old); !errors.Is(err, os.ErrNotExist) {
		fs.halt(err)
	}
	return fs.Create(name, category)
}

func (fs *haltingFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return haltingFile{f, fs}, nil
}

func (fs *haltingFS) Unwrap() vfs.FS { return fs.FS }

type haltingFile struct {
	vfs.File
	fs *haltingFS
}

func (f haltingFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.fs.halt(err)
	return n, nil
}

func (f haltingFile) Sync() error {
	f.fs.halt(f.File.Sync())
	return nil
}

func (f haltingFile) SyncData() error {
	f.fs.halt(f.File.SyncData())
	return nil
}

func (f haltingFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	f.fs.halt(err)
	return full, nil
}

// After each sync, manifestFile records in carstate.json how much of the manifest is on disk.
type manifestFile struct {
	vfs.File
	dir *dataDir
	is  manifest
}

func (f *manifestFile) Write(b []byte) (int, error) {
	sum := crc32.Update(f.is.Sum, codec.Castagnoli, b) // before the write, because the file may change b
	n, err := f.File.Write(b)
	if err == nil {
		f.is.Size, f.is.Sum = f.is.Size+int64(n), sum
	}
	return n, err
}

func (f *manifestFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return f.dir.change(func(id *identity) { id.Manifest = f.is })
}
