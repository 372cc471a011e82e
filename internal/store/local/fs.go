package local

import (
	"cmp"
	"errors"
	"hash/crc32"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
)

// haltingFS blocks Pebble after an error of its log: otherwise, Pebble would end the process.
type haltingFS struct {
	vfs.FS
	e *Engine
}

const tableBackoff = time.Second // Pebble itself retries to write a table at once.

const (
	logFiles    vfs.DiskWriteCategory = "pebble-wal"
	compactions vfs.DiskWriteCategory = "pebble-compaction"
)

// The blocked goroutine may hold locks of Pebble, so even a read may block, too.
func (e *Engine) halt(err error) {
	if err != nil {
		e.failWrites(err)
		select {}
	}
}

func (fs *haltingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") && fs.e.tablesBackOff.Swap(false) {
		_ = periodic.Pause(fs.e.cut, tableBackoff) // fails if the engine closes
	}
	plain := fs.e.config.FS // does not draw: compactions would use up the reserve
	switch category {
	case compactions:
		return plain.Create(name, category)
	case logFiles:
		f, err := plain.Create(name, category)
		if errors.Is(err, syscall.ENOSPC) && fs.e.reserve.draw() {
			f, err = plain.Create(name, category)
		}
		fs.e.halt(err)
		fs.e.dir.logCreated(fs.PathBase(name))
		return &haltingFile{File: f, e: fs.e}, nil
	}
	f, err := fs.FS.Create(name, category)
	if base := fs.PathBase(name); err == nil && strings.HasPrefix(base, "MANIFEST-") {
		return &manifestFile{File: f, dir: fs.e.dir, is: manifest{Name: base}}, nil
	}
	return f, err
}

// Pebble does not repeat a failed removal; removeAgain does.
func (fs *haltingFS) Remove(name string) error {
	err := fs.e.dir.logRemoved(fs.PathBase(name))
	if err == nil {
		err = fs.FS.Remove(name)
	}
	switch {
	case err == nil || errors.Is(err, os.ErrNotExist):
		fs.e.unremoved.Delete(name)
	case isLog(name) || strings.HasSuffix(name, ".sst"): // no other file names a vehicle
		fs.e.unremoved.Store(name, fs)
	}
	return err
}

func (e *Engine) removeAgain() (err error) {
	for name, fs := range e.unremoved.Range {
		if failed := fs.(*haltingFS).Remove(name.(string)); !errors.Is(failed, os.ErrNotExist) {
			err = cmp.Or(err, failed)
		}
	}
	return err
}

// remover keeps Pebble from reusing old logs: they would take room, and could still name a forgotten
// vehicle.
type remover struct {
	pebble.DeleteCleaner
	noReuse
}

type noReuse struct{ pebble.ArchiveCleaner } // for its unexported method alone, by which Pebble reuses no log

func (fs *haltingFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &haltingFile{File: f, e: fs.e}, nil
}

type haltingFile struct {
	vfs.File
	e    *Engine
	size int64
}

// On a full disk, Write frees a part of the reserve and takes all of it, before others do.
func (f *haltingFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	for errors.Is(err, syscall.ENOSPC) && f.e.reserve.draw() {
		_ = f.Preallocate(f.size+int64(n), partBytes) // not every file system can
		var more int
		more, err = f.File.Write(b[n:])
		n += more
	}
	f.e.halt(err)
	f.size += int64(n)
	return n, nil
}

func (f *haltingFile) Sync() error {
	f.e.halt(f.File.Sync())
	return nil
}

func (f *haltingFile) SyncData() error {
	f.e.halt(f.File.SyncData())
	return nil
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
