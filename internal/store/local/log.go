package local

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logFile is a file of Pebble's write-ahead log, open for writing. It corrects a number that Pebble
// 2.1.7 writes too small. Each chunk of the log says how many bytes of the file were synced before
// the chunk was written. From this number, Pebble distinguishes damage from the incomplete end that
// a power cut leaves. But when Pebble writes several blocks at once, it counts only the last block
// (writtenOffset in record/log_writer.go). Without the correction, it would treat most damage as
// the end of the log.
type logFile struct {
	haltingFile
	written, synced int64  // bytes
	corrected       []byte // the bytes to write, with corrected numbers
}

// Format of Pebble's chunks that contain the number of synced bytes (record/record.go): checksum (4
// bytes), length (2), kind (1), number of the log (4), synced bytes (8), payload. A chunk does not
// cross a block boundary. If the rest of a block is too small for a header, it is filled with
// zeros.
const (
	logBlockBytes    = 32 << 10
	chunkHeaderBytes = 19
	firstChunkKind   = 9
	lastChunkKind    = 12
)

// chunkSum returns the checksum of a log chunk, computed as in Pebble's internal/crc.
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
			break // the end-of-file marker
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

// logCut is a file system in which the write-ahead log of a store ends before its first damage.
type logCut struct {
	vfs.FS
	last string // the damaged file; later ones are hidden; "" if none is damaged
	good int64  // how many bytes of it are shown
}

// cutLog returns a view of the file system fsys in which the log in directory dir ends before its
// first damage.
func cutLog(fsys vfs.FS, dir string) (*logCut, error) {
	files, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(files) // their numbers have the same number of digits
	for _, f := range files {
		if !isLog(f) {
			continue
		}
		content, err := readFile(fsys, fsys.PathJoin(dir, f))
		if err != nil {
			return nil, err
		}
		if good, damaged := goodChunks(content); damaged {
			return &logCut{fsys, f, int64(good)}, nil
		}
	}
	return &logCut{FS: fsys}, nil
}

// olderHeaderBytes is the header size of a chunk without a number of synced bytes. The first
// log of a directory has such chunks, because Pebble creates it before it knows which format
// to write.
const olderHeaderBytes = 11

// goodChunks returns how many bytes at the beginning of a log file are good, and whether damage
// follows them. See [logFile] for the format.
func goodChunks(content []byte) (good int, damaged bool) {
	for good < len(content) {
		left := min(logBlockBytes-good%logBlockBytes, len(content)-good)
		chunk := content[good:][:left]
		if left < olderHeaderBytes {
			good += left
			continue
		}
		sum, length := binary.LittleEndian.Uint32(chunk), int(binary.LittleEndian.Uint16(chunk[4:]))
		switch kind := chunk[6]; {
		case sum == 0 && length == 0 && left < chunkHeaderBytes:
			good += left
			continue
		case sum == 0 && length == 0:
			return good, false // the end-of-file marker
		case kind < firstChunkKind:
			length += olderHeaderBytes
		default:
			length += chunkHeaderBytes
		}
		if length > left || sum != chunkSum(chunk[:length]) {
			return good, true
		}
		good += length
	}
	return good, false
}

// List implements [vfs.FS].
func (l *logCut) List(dir string) ([]string, error) {
	files, err := l.FS.List(dir)
	return slices.DeleteFunc(files, func(f string) bool { return l.last != "" && isLog(f) && f > l.last }), err
}

// Open implements [vfs.FS].
func (l *logCut) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := l.FS.Open(name, options...)
	if err == nil && l.PathBase(name) == l.last {
		return &shortFile{f, io.LimitReader(f, l.good)}, nil
	}
	return f, err
}

// shortFile shows only the beginning of a file.
type shortFile struct {
	vfs.File
	begin io.Reader
}

// Read implements [vfs.File].
func (f *shortFile) Read(b []byte) (int, error) { return f.begin.Read(b) }
