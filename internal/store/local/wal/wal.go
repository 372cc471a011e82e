// Package wal guards the write-ahead log of a Pebble store. Pebble 2.1.7 takes some damage of a log
// for the incomplete end that a power cut leaves, and would open the store without the records that
// follow. This package corrects what Pebble writes ([Note.File]), notes how much of the newest log is
// synced ([Note]), finds damage before Pebble replays a log ([Check], [Missing]), and reads the good
// records of a damaged log ([Mender]). It must not know what the records hold.
package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"carstate/internal/store/codec"
	"carstate/internal/store/local/durable"
)

// IsLog reports whether name is a file of the write-ahead log.
func IsLog(name string) bool { return strings.HasSuffix(name, ".log") }

// numberOf returns the number of the log with the given path. It is the name of the log.
func numberOf(path string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".log"), 10, 64) // Pebble names its logs so
	return n
}

// logFile is a file of Pebble's write-ahead log, open for writing. It corrects a number that Pebble
// 2.1.7 writes too small. Each chunk of the log says how many bytes of the file were synced before
// the chunk was written. From this number, Pebble distinguishes damage from the incomplete end that
// a power cut leaves. But when Pebble writes several blocks at once, it counts only the last block
// (writtenOffset in record/log_writer.go). Without the correction, it would treat most damage as
// the end of the log.
type logFile struct {
	vfs.File
	note            *Note
	number          uint64 // of the log
	written, synced int64  // bytes
	corrected       []byte // the bytes to write, with corrected numbers
}

// Format of Pebble's chunks that contain the number of synced bytes (record/record.go): checksum (4
// bytes), length (2), kind (1), number of the log (4), synced bytes (8), payload. A chunk does not
// cross a block boundary. If the rest of a block is too small for a header, it is filled with
// zeros.
//
// The first log of a directory that an older carstate made has chunks without the number of synced
// bytes. The same header, with a length of 0 and the number of the next log, marks the end of a log.
const (
	logBlockBytes    = 32 << 10
	chunkHeaderBytes = 19
	firstChunkKind   = 9
	lastChunkKind    = 12
	olderHeaderBytes = 11
	firstOlderKind   = 5
)

// chunkSum returns the checksum of a log chunk, computed as in Pebble's internal/crc.
func chunkSum(chunk []byte) uint32 {
	sum := crc32.Checksum(chunk[6:], codec.Castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// File returns a file of the log that corrects what Pebble writes to it, writes that to f, and notes
// in n how much is synced. The parameter name is the path of the file, which is new and empty.
func (n *Note) File(f vfs.File, name string) vfs.File {
	return &logFile{File: f, note: n, number: numberOf(name)}
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
	n, err := f.File.Write(f.corrected)
	f.written += int64(n)
	return n, err
}

// Sync implements [vfs.File].
func (f *logFile) Sync() error {
	return f.noteSynced(f.File.Sync())
}

// SyncData implements [vfs.File].
func (f *logFile) SyncData() error {
	return f.noteSynced(f.File.SyncData())
}

// noteSynced returns err, the result of a sync. If err is nil, it notes that all written bytes are
// synced.
func (f *logFile) noteSynced(err error) error {
	if err == nil {
		f.synced = f.written
		f.note.write(syncedBytes{f.number, f.synced})
	}
	return err
}

// syncedBytes says how many bytes of a log are synced.
type syncedBytes struct {
	Log   uint64 // number of the log
	Bytes int64
}

// Note is the file that says how much of the newest log is synced. It is written after each
// sync of the log, and is not synced itself. After a kill it is therefore exact, so that a start
// finds damage also in the last acknowledged records, after which no chunk says that they were
// synced. After a power cut it may be older or absent, and then says too little, never too much. The
// zero value is ready for Open. It is safe for concurrent use.
type Note struct {
	mu sync.Mutex // guards f
	f  vfs.File   // nil before Open and after Close
}

// syncedFile is the name of the file of Note in the directory of the store.
const syncedFile = "synced"

// Open opens the note in the directory dir, and creates it if it is absent. If it is open already,
// Open does nothing.
func (n *Note) Open(fsys vfs.FS, dir string) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.f != nil {
		return nil
	}
	name := fsys.PathJoin(dir, syncedFile)
	if _, err := fsys.Stat(name); errors.Is(err, fs.ErrNotExist) {
		if err := durable.WriteFile(fsys, name, syncedBytes{}.text()); err != nil {
			return err
		}
	}
	n.f, err = fsys.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	return err
}

// write replaces the note. An error is ignored, because a note that says less is correct too.
func (n *Note) write(s syncedBytes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.f != nil {
		_, _ = n.f.WriteAt(s.text(), 0)
	}
}

// Close closes the note. A log that is synced later is not noted.
func (n *Note) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.f != nil {
		_ = n.f.Close() // see write
	}
	n.f = nil
}

// text returns the content of the note: both numbers and a checksum.
func (s syncedBytes) text() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 20), s.Log) // one allocation: it runs after each sync
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Bytes))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, codec.Castagnoli))
}

// readSynced reads the note in the directory dir. If the note is absent or damaged, or cannot be
// read, the result is zero.
func readSynced(fsys vfs.FS, dir string) (s syncedBytes) {
	text, err := durable.ReadFile(fsys, fsys.PathJoin(dir, syncedFile))
	if err != nil || len(text) < len(s.text()) {
		return syncedBytes{}
	}
	s.Log, s.Bytes = binary.LittleEndian.Uint64(text), int64(binary.LittleEndian.Uint64(text[8:]))
	if !bytes.Equal(text, s.text()) {
		return syncedBytes{}
	}
	return s
}

// logChunk is a chunk of a log.
type logChunk struct {
	kind    byte
	size    int
	synced  int64  // 0 if the chunk does not say it
	payload []byte // valid until the next block is read
	skipped bool   // bytes that are no chunk precede it
}

// chunkAt returns the chunk at the beginning of b, the rest of a block of a log. If there is no
// chunk with a correct checksum, ok is false.
func chunkAt(b []byte, log uint32) (c logChunk, ok bool) {
	if len(b) < olderHeaderBytes || binary.LittleEndian.Uint32(b[7:]) != log {
		return c, false
	}
	header := olderHeaderBytes
	c.kind = b[6]
	switch {
	case c.kind < firstOlderKind || c.kind > lastChunkKind:
		return c, false
	case c.kind >= firstChunkKind && len(b) < chunkHeaderBytes:
		return c, false
	case c.kind >= firstChunkKind:
		header, c.synced = chunkHeaderBytes, int64(binary.LittleEndian.Uint64(b[11:]))
	}
	c.size = header + int(binary.LittleEndian.Uint16(b[4:]))
	if c.size > len(b) || binary.LittleEndian.Uint32(b) != chunkSum(b[:c.size]) {
		return c, false
	}
	c.payload = b[header:c.size]
	return c, true
}

// readLog reads the log with the given number. It calls do with each chunk, also with those after
// bytes that are no chunk. The result good is the number of bytes before the first such byte, whole
// says that there is none, and synced is the greatest number of synced bytes of a chunk after it.
func readLog(r io.Reader, log uint32, do func(logChunk)) (good int64, whole bool, synced int64, err error) {
	block := make([]byte, logBlockBytes)
	whole = true
	skipped := false
	for begin := int64(0); ; begin += logBlockBytes {
		n, err := io.ReadFull(r, block)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return good, whole, synced, err
		}
		for at := 0; at < n; {
			rest := block[at:n]
			c, ok := chunkAt(rest, log)
			switch {
			case ok:
				c.skipped, skipped = skipped, false
				do(c)
				if at += c.size; !whole {
					synced = max(synced, c.synced)
				}
			case whole && isLogEnd(rest, log):
				return begin + int64(at+olderHeaderBytes), true, 0, nil
			case n == logBlockBytes && len(rest) < chunkHeaderBytes && len(bytes.Trim(rest, "\x00")) == 0:
				at = n
			default:
				whole, skipped = false, true
				at++
			}
			if whole {
				good = begin + int64(at)
			}
		}
	}
}

// isLogEnd reports whether b begins with the mark of the end of the log with the given number.
func isLogEnd(b []byte, log uint32) bool {
	end := make([]byte, olderHeaderBytes)
	end[6] = firstOlderKind
	binary.LittleEndian.PutUint32(end[7:], log+1)
	return bytes.HasPrefix(b, end)
}

// DamageError means that a log is damaged.
type DamageError struct {
	name     string
	at, size int64 // bytes
}

func (e DamageError) Error() string {
	return fmt.Sprintf("the write-ahead log %s, of %d bytes, is damaged at byte %d", e.name, e.size, e.at)
}

// Check returns a DamageError if the log with the given path contains anything but chunks
// in that part of the file that was synced, or anywhere if there is a newer log. Pebble does not
// check the last block of a log, nor what the note says. Like Check, Pebble treats the incomplete
// end that a power cut leaves as no damage.
func Check(fsys vfs.FS, path string) error {
	f, err := fsys.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	number := numberOf(path)
	good, whole, synced, err := readLog(f, uint32(number), func(logChunk) {})
	if err != nil {
		return err
	}
	if note := readSynced(fsys, fsys.PathDir(path)); note.Log == number && note.Bytes > good+olderHeaderBytes {
		whole, synced = false, note.Bytes // more is lost than the mark of the end
	}
	if whole {
		return nil
	}
	files, err := fsys.List(fsys.PathDir(path))
	if err != nil {
		return err
	}
	newer := slices.ContainsFunc(files, func(f string) bool { return IsLog(f) && numberOf(f) > number })
	if synced <= good && !newer {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return DamageError{fsys.PathBase(path), good, info.Size()}
}

// Missing reports whether the newest log of the store in the directory dir is missing: dir contains
// neither the log that the note of the synced bytes names nor a newer one.
func Missing(fsys vfs.FS, dir string) (bool, error) {
	note := readSynced(fsys, dir) // before the list: a running process may begin a newer log
	files, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return !slices.ContainsFunc(files, func(f string) bool { return IsLog(f) && numberOf(f) >= note.Log }), nil
}

// Mender is a file system in which the damaged logs of a store have only their good records, so
// that Pebble can read them.
type Mender struct {
	vfs.FS
	Mended map[string]bool // names of the damaged logs that were opened; not nil
}

// Open implements [vfs.FS].
func (m *Mender) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if !IsLog(name) {
		return m.FS.Open(name, options...)
	}
	err := Check(m.FS, name)
	_, damaged := errors.AsType[DamageError](err)
	if err != nil && !damaged {
		return nil, err
	}
	f, err := m.FS.Open(name, options...)
	if err != nil || !damaged {
		return f, err
	}
	good, err := goodRecords(f, uint32(numberOf(name)))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m.Mended[m.PathBase(name)] = true
	return &mendedLog{f, bytes.NewReader(good)}, nil
}

// goodRecords returns a log with the complete records of the log that r reads.
func goodRecords(r io.Reader, log uint32) ([]byte, error) {
	var good bytes.Buffer
	w := record.NewWriter(&good)
	var text []byte // the record so far
	var failed error
	begun := false
	_, _, _, err := readLog(r, log, func(c logChunk) {
		const full, first, last = 0, 1, 3 // of each four kinds
		part := (c.kind - firstOlderKind) % 4
		if begun = begun && !c.skipped; part == full || part == first {
			text, begun = text[:0], true
		}
		text = append(text, c.payload...)
		if begun && (part == full || part == last) {
			_, err := w.WriteRecord(text)
			failed = errors.Join(failed, err)
			begun = false
		}
	})
	return good.Bytes(), errors.Join(err, failed, w.Close())
}

// mendedLog shows only the good records of a damaged log.
type mendedLog struct {
	vfs.File
	good io.Reader
}

// Read implements [vfs.File].
func (f *mendedLog) Read(b []byte) (int, error) { return f.good.Read(b) }
