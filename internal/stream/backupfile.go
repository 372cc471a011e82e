package stream

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"time"

	"carstate/internal/store/codec"
)

// A backup is a file of
//
//	"carstate backup 1\n"
//	frames: uint32 length, uint32 CRC-32C of what follows, uvarint length of the
//	        subject, subject, the sealed record
//	an empty frame: two zero uint32
//	32 bytes SHA-256 of all before
//
// The first record is the header. Those of SOURCES come before those of TOKENS,
// and these before those of STATES, so that whoever reads knows what is forgotten
// and what was revoked before anything else. Those of ROADS come last. Numbers are
// little endian.
//
// Each record is as it was at some moment between the beginning and the end of
// the backup. What is left out: telemetry, with the cursors that count in it, the
// audit, heartbeats.

const (
	backupMagic   = "carstate backup "
	backupVersion = "2\n"
	headerSubject = "backup.header"
	// maxFrame is more than the largest record and its subject.
	maxFrame = payloadBytes + 1024
)

var frameSums = crc32.MakeTable(crc32.Castagnoli)

// Errors of a backup that cannot be used. Nothing was changed.
var (
	errForeignBackup = errors.New("this is no backup of carstate")
	errOlderBackup   = errors.New("this backup was written by an older carstate, which this version does not read: restore it with that version")
	errNewerBackup   = errors.New("this backup was written by a newer carstate: restore it with that version or a newer one")
	errTornBackup    = errors.New("this backup is cut off or damaged: take another one, or use an older file")
)

// backupHeader is the first record of a backup.
type backupHeader struct {
	Version    string    `json:"version"`
	Began      time.Time `json:"began"`
	Partitions int       `json:"partitions"`
}

// backupWriter writes frames and hashes them.
type backupWriter struct {
	w    *bufio.Writer
	hash hash.Hash
	n    int
}

func newBackupWriter(w io.Writer) *backupWriter {
	h := sha256.New()
	return &backupWriter{w: bufio.NewWriterSize(io.MultiWriter(w, h), 64<<10), hash: h}
}

func (b *backupWriter) add(subject string, sealed []byte) error {
	head := binary.AppendUvarint(make([]byte, 8, 16), uint64(len(subject)))
	sum := crc32.Checksum(head[8:], frameSums)
	sum = crc32.Update(sum, frameSums, []byte(subject))
	sum = crc32.Update(sum, frameSums, sealed)
	binary.LittleEndian.PutUint32(head, uint32(len(head)-8+len(subject)+len(sealed)))
	binary.LittleEndian.PutUint32(head[4:], sum)
	b.n++
	for _, part := range [][]byte{head, []byte(subject), sealed} {
		if _, err := b.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// begin writes what every backup begins with.
func (b *backupWriter) begin(h backupHeader) error {
	if _, err := b.w.WriteString(backupMagic + backupVersion); err != nil {
		return err
	}
	header, err := sealJSON(headerSubject, h)
	if err != nil {
		return err
	}
	return b.add(headerSubject, header)
}

func (b *backupWriter) end() error {
	if _, err := b.w.Write(make([]byte, 8)); err != nil {
		return err
	}
	if err := b.w.Flush(); err != nil { // into the hash
		return err
	}
	if _, err := b.w.Write(b.hash.Sum(nil)); err != nil {
		return err
	}
	return b.w.Flush()
}

// backupReader reads frames and hashes them.
type backupReader struct {
	r    *bufio.Reader
	hash hash.Hash
	buf  []byte
}

// openBackup reads the beginning of a backup.
func openBackup(r io.Reader) (*backupReader, backupHeader, error) {
	h := sha256.New()
	b := &backupReader{r: bufio.NewReaderSize(r, 64<<10), hash: h}
	var header backupHeader
	magic := make([]byte, len(backupMagic)+len(backupVersion))
	n, err := io.ReadFull(b.r, magic)
	h.Write(magic)
	switch {
	case !bytes.HasPrefix(magic[:n], []byte(backupMagic)):
		return nil, header, errForeignBackup
	case err != nil:
		return nil, header, errTornBackup
	case string(magic[len(backupMagic):]) < backupVersion:
		return nil, header, errOlderBackup
	case string(magic[len(backupMagic):]) != backupVersion:
		return nil, header, errNewerBackup
	}
	first, err := b.next()
	if err != nil {
		return nil, header, err
	}
	if first.subject != headerSubject || json.Unmarshal(first.body, &header) != nil {
		return nil, header, errTornBackup
	}
	return b, header, nil
}

// next returns the next record, which is valid until the one after it; io.EOF
// after the last, when all of the file turned out to be whole.
func (b *backupReader) next() (record, error) {
	var head [8]byte
	if err := b.read(head[:]); err != nil {
		return record{}, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	if n == 0 {
		return record{}, b.end()
	}
	if n > maxFrame {
		return record{}, errTornBackup
	}
	if cap(b.buf) < n {
		b.buf = make([]byte, n)
	}
	frame := b.buf[:n]
	if err := b.read(frame); err != nil {
		return record{}, err
	}
	if crc32.Checksum(frame, frameSums) != binary.LittleEndian.Uint32(head[4:]) {
		return record{}, errTornBackup
	}
	length, at := binary.Uvarint(frame)
	if at <= 0 || length > uint64(n-at) {
		return record{}, errTornBackup
	}
	end := at + int(length)
	subject, sealed := string(frame[at:end]), frame[end:]
	body, err := codec.Unseal(subject, sealed)
	switch {
	case errors.Is(err, codec.ErrNewer):
		return record{}, fmt.Errorf("%w (%w)", errNewerBackup, err)
	case err != nil:
		return record{}, errTornBackup
	}
	return record{subject: subject, body: body, sealed: sealed}, nil
}

func (b *backupReader) read(p []byte) error {
	_, err := io.ReadFull(b.r, p)
	b.hash.Write(p)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errTornBackup
	}
	return fmt.Errorf("the backup cannot be read: %w", err)
}

// end compares the hash, after which nothing may follow.
func (b *backupReader) end() error {
	want := b.hash.Sum(nil)
	sum := make([]byte, sha256.Size)
	if err := b.read(sum); err != nil {
		return err
	}
	if _, err := b.r.ReadByte(); !bytes.Equal(sum, want) || err != io.EOF {
		return errTornBackup
	}
	return io.EOF
}
