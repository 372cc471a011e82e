package local

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// privateFS makes files that others cannot read, and a new file where Pebble would write
// over an old log: the old file's bytes would outlive what they name.
type privateFS struct{ vfs.FS }

// Create implements [vfs.FS].
func (fs privateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if err == nil && onDisk(fs) {
		if err = os.Chmod(name, 0o600); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, err
}

// ReuseForWrite implements [vfs.FS].
func (fs privateFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	// The old one may have been removed because of what it named.
	if err := fs.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return fs.Create(name, category)
}

// Unwrap implements [vfs.FS].
func (fs privateFS) Unwrap() vfs.FS { return fs.FS }

// onDisk reports whether a file system is the machine's, with permissions.
func onDisk(fs vfs.FS) bool { return vfs.Root(fs) == vfs.Root(vfs.Default) }

// haltingFS keeps errors of the log's files from Pebble, which ends the process over some of
// them in a way that nobody can recover from. It reports the error instead, and the goroutine
// that met it never goes on.
type haltingFS struct {
	vfs.FS
	jam func(error)
	dir *dataDir
	cut context.Context // ends the rests

	refused atomic.Int64 // when a table could not be written, Unix ns
}

// tableRest is how long the tables rest after one could not be written: Pebble tries again
// without any.
const tableRest = time.Second

// rest waits if a table could not be written a moment ago.
func (fs *haltingFS) rest() {
	left := tableRest - time.Since(time.Unix(0, fs.refused.Load()))
	if left <= 0 {
		return
	}
	select {
	case <-time.After(left):
	case <-fs.cut.Done():
	}
}

// note notes that a table could not be written.
func (fs *haltingFS) note(err error) error {
	if err != nil {
		fs.refused.Store(time.Now().UnixNano())
	}
	return err
}

// logFiles is the category of the files of Pebble's log.
const logFiles vfs.DiskWriteCategory = "pebble-wal"

func (fs *haltingFS) halt(err error) {
	if err != nil {
		fs.jam(err)
		select {}
	}
}

// Create implements [vfs.FS].
func (fs *haltingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	table := strings.HasSuffix(name, ".sst")
	if table {
		fs.rest()
	}
	f, err := fs.FS.Create(name, category)
	if table {
		return tableFile{f, fs}, fs.note(err)
	}
	if base := fs.PathBase(name); err == nil && strings.HasPrefix(base, "MANIFEST-") {
		return &manifestFile{File: f, dir: fs.dir, is: manifest{Name: base}}, nil
	}
	if category != logFiles {
		return f, err
	}
	fs.halt(err)
	return &logFile{haltingFile: haltingFile{f, fs}}, nil
}

// ReuseForWrite implements [vfs.FS].
func (fs *haltingFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(old, name, category)
	fs.halt(err)
	return &logFile{haltingFile: haltingFile{f, fs}}, nil
}

// OpenDir implements [vfs.FS].
func (fs *haltingFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return haltingFile{f, fs}, nil
}

// Unwrap implements [vfs.FS].
func (fs *haltingFS) Unwrap() vfs.FS { return fs.FS }

// tableFile is a table that is written.
type tableFile struct {
	vfs.File
	fs *haltingFS
}

// Write implements [vfs.File].
func (f tableFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.fs.note(err)
}

// Sync implements [vfs.File].
func (f tableFile) Sync() error { return f.fs.note(f.File.Sync()) }

// isLog reports whether a file of the store is a log.
func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// haltingFile is a file of the log, or a directory.
type haltingFile struct {
	vfs.File
	fs *haltingFS
}

// Write implements [vfs.File].
func (f haltingFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.fs.halt(err)
	return n, nil
}

// Sync implements [vfs.File].
func (f haltingFile) Sync() error {
	f.fs.halt(f.File.Sync())
	return nil
}

// SyncData implements [vfs.File].
func (f haltingFile) SyncData() error {
	f.fs.halt(f.File.SyncData())
	return nil
}

// SyncTo implements [vfs.File].
func (f haltingFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	f.fs.halt(err)
	return full, nil
}

// logFile is a file of the log that is written. Each of its chunks says how many bytes of the
// file were on disk before, which tells damage from what a power cut left of the end. Pebble
// 2.1.7 counts the last block only, where it writes several at once (writtenOffset in
// record/log_writer.go), and then takes most damage for the end. So the number is corrected
// here.
type logFile struct {
	haltingFile
	written, synced int64  // bytes
	corrected       []byte // what is written
}

// Pebble's chunks with a number of bytes on disk (record/record.go): checksum (4 bytes),
// length (2), kind (1), number of the log (4), bytes on disk (8), and then the chunk. Chunks
// do not cross blocks; a block whose rest is too small for a header ends with zeros.
const (
	logBlockBytes    = 32 << 10
	chunkHeaderBytes = 19
	firstChunkKind   = 9
	lastChunkKind    = 12
)

// chunkSum is the checksum of a chunk of the log, as Pebble's internal/crc makes it.
func chunkSum(chunk []byte) uint32 {
	sum := crc32.Checksum(chunk[6:], castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// Write implements [vfs.File]. Pebble writes whole chunks.
func (f *logFile) Write(b []byte) (int, error) {
	f.corrected = append(f.corrected[:0], b...)
	for at := 0; at+chunkHeaderBytes <= len(b); {
		left := logBlockBytes - int((f.written+int64(at))%logBlockBytes)
		if left < chunkHeaderBytes {
			at += left
			continue
		}
		chunk := f.corrected[at:]
		length := chunkHeaderBytes + int(binary.LittleEndian.Uint16(chunk[4:]))
		if kind := chunk[6]; kind < firstChunkKind || kind > lastChunkKind || length > min(left, len(chunk)) {
			break // the mark of the end
		}
		binary.LittleEndian.PutUint64(chunk[11:], uint64(f.synced))
		binary.LittleEndian.PutUint32(chunk, chunkSum(chunk[:length]))
		at += length
	}
	n, err := f.haltingFile.Write(f.corrected)
	f.written += int64(n)
	return n, err
}

// Sync implements [vfs.File].
func (f *logFile) Sync() error {
	err := f.haltingFile.Sync()
	f.synced = f.written
	return err
}

// SyncData implements [vfs.File].
func (f *logFile) SyncData() error {
	err := f.haltingFile.SyncData()
	f.synced = f.written
	return err
}

// manifestFile notes how much of a manifest is on disk.
type manifestFile struct {
	vfs.File
	dir *dataDir
	is  manifest
}

// Write implements [vfs.File].
func (f *manifestFile) Write(b []byte) (int, error) {
	sum := crc32.Update(f.is.Sum, castagnoli, b) // before, because a file may spoil what it is given
	n, err := f.File.Write(b)
	if err == nil {
		f.is.Size, f.is.Sum = f.is.Size+int64(n), sum
	}
	return n, err
}

// Sync implements [vfs.File].
func (f *manifestFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return f.dir.change(func(id *identity) { id.Manifest = f.is })
}
