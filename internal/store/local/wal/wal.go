// Package wal finds damage in the write-ahead log of a Pebble store. Pebble 2.1.7 cannot
// distinguish some damage of a log from the incomplete end that a power cut leaves; it would open
// the store without the records that follow the damage. This package corrects what Pebble writes
// ([Note.File]), notes how much of the newest log is synced ([Note]), finds damage before Pebble
// replays a log ([Check], [Missing]), and reads the good records of a damaged log ([Mender]). It
// must not know what the records hold.
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

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local/durable"
)

// IsLog reports whether name is a file of the write-ahead log.
func IsLog(name string) bool { return strings.HasSuffix(name, ".log") }

// numberOf returns the number of the log with the given path. The file is named after its number.
func numberOf(path string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".log"), 10, 64) // Pebble names its logs so
	return n
}

// logFile is a file of Pebble's write-ahead log, open for writing. It corrects the number of synced
// bytes in each chunk, for which Pebble 2.1.7 writes too low a value: when it writes several blocks
// at once, it counts only the last block (writtenOffset in record/log_writer.go). Without the
// correction, Pebble would take most damage for the incomplete end of the log.
type logFile struct {
	vfs.File
	note            *Note
	number          uint64 // number of the log
	written, synced int64  // bytes of the file
	corrected       []byte // the bytes to write, with corrected numbers
}

// Format of those of Pebble's chunks that contain the number of synced bytes (record/record.go):
// checksum (4 bytes), length (2), kind (1), number of the log (4), synced bytes (8), payload. Their
// kinds are firstChunkKind to lastChunkKind. A chunk does not cross a block boundary. If the rest
// of a block is too small for a header, it is filled with zeros.
//
// An older header, of olderHeaderBytes, lacks the number of synced bytes; its kinds begin with
// firstOlderKind. The first log of a directory that an older carstate made has chunks with this
// header. The mark at the end of a log is also such a header, with the length 0 and the number of
// the next log.
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

// File returns a file through which Pebble writes a log. It corrects what Pebble writes (see
// logFile), writes the result to f, and records in n how much of f is synced. name is the path of
// f, which is new and empty.
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

func (f *logFile) Sync() error {
	return f.noteSynced(f.File.Sync())
}

func (f *logFile) SyncData() error {
	return f.noteSynced(f.File.SyncData())
}

// noteSynced records, if err is nil, that all bytes written so far are synced, and returns err.
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

// Note is a small file beside the log that says how much of the newest log is synced. A start
// compares the log with the note, to find damage in the last acknowledged records. (For earlier
// records, later chunks of the log say that they were synced.) The note is written after each sync
// of the log, and is not synced itself. So after a kill of the process, the note is exact. After a
// power cut, it may be out of date or absent; it then states fewer synced bytes than there are,
// never more. The zero value is ready for Open. It is safe for concurrent use.
type Note struct {
	mu sync.Mutex // guards f
	f  vfs.File   // nil before Open and after Close
}

// syncedFile is the name of the note's file (see Note) in the directory of the store.
const syncedFile = "synced"

// Open opens the note in the directory dir, and creates it if it is absent. If the note is open
// already, Open does nothing and returns nil.
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

// write replaces the content of the note. An error is ignored, because the old content, which says
// that less is synced, is correct too.
func (n *Note) write(s syncedBytes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.f != nil {
		_, _ = n.f.WriteAt(s.text(), 0)
	}
}

// Close closes the note. Later syncs of the log are not recorded in it.
func (n *Note) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.f != nil {
		_ = n.f.Close() // see write
	}
	n.f = nil
}

// text returns the content of the note: the number of the log, the number of its synced bytes, and
// a checksum.
func (s syncedBytes) text() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 20), s.Log) // one allocation: it runs after each sync
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Bytes))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, codec.Castagnoli))
}

// readSynced reads the note in the directory dir. The result is zero if it cannot be read.
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

// logChunk is a chunk of a log, which holds a record or a part of one.
type logChunk struct {
	kind    byte
	size    int
	synced  int64  // 0 if the chunk does not say it
	payload []byte // valid until the next block is read
	skipped bool   // bytes that are no chunk precede it
}

// chunkAt returns the chunk with which b, the rest of a block, begins, if its checksum is correct.
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

// readLog calls do with each chunk of a log, and skips bytes that are no chunk. good is the number
// of bytes before the first skipped byte; synced is the greatest number of synced bytes that a
// chunk after it contains.
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
	at, size int64 // offset of the damage and size of the log, bytes
}

func (e DamageError) Error() string {
	return fmt.Sprintf("the write-ahead log %s, of %d bytes, is damaged at byte %d", e.name, e.size, e.at)
}

// Check returns a DamageError if the log with the given path contains bytes that are no chunk. In
// the newest log, only those in the synced part are damage, because a power cut may leave an
// incomplete end. Pebble checks neither the last block of a log nor the [Note].
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
		whole, synced = false, note.Bytes // the file lacks more than the mark of its end
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

// Missing reports whether the directory dir contains neither the log that the [Note] names nor a
// newer one, or, without a readable Note, no log at all.
func Missing(fsys vfs.FS, dir string) (bool, error) {
	note := readSynced(fsys, dir) // before the list: a running process may begin a newer log
	files, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return !slices.ContainsFunc(files, func(f string) bool { return IsLog(f) && numberOf(f) >= note.Log }), nil
}

// Mender is a file system that shows only the good records of damaged logs, so that Pebble can read
// these logs.
type Mender struct {
	vfs.FS
	Mended map[string]bool // names of the damaged logs that were opened; not nil
}

// Open implements [vfs.FS]: a damaged log contains only its good records.
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

// goodRecords returns a log, newly written in memory, with all undamaged records of another log.
func goodRecords(r io.Reader, log uint32) ([]byte, error) {
	var good bytes.Buffer
	w := record.NewWriter(&good)
	var text []byte // the record so far
	var failed error
	begun := false
	_, _, _, err := readLog(r, log, func(c logChunk) {
		const full, first, last = 0, 1, 3 // position in each group of four kinds
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

func (f *mendedLog) Read(b []byte) (int, error) { return f.good.Read(b) }
