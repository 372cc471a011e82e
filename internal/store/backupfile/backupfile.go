// Package backupfile defines the file format of a backup:
//
//	"carstate backup 3\n"
//	frames: uint32 length, uint32 CRC-32C of the rest of the frame, uvarint length of the
//	        subject, subject, the sealed record
//	an empty frame: two zero uint32
//	32 bytes SHA-256 of all bytes before
//	32 bytes HMAC-SHA-256 of these 32 bytes, with the backup key of the service that wrote it
//
// The first record is the header. Numbers are little endian.
package backupfile

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"time"

	"example.org/carstate/internal/store/codec"
)

const (
	magic         = "carstate backup "
	version       = "3\n"
	headerSubject = "backup.header"
	maxFrame      = 1<<20 + 1024 // The largest record has 1 MiB.
)

// Errors that mean that a backup cannot be used.
var (
	ErrForeign = errors.New("not a carstate backup")
	ErrOlder   = errors.New("this backup was written by an older version of carstate: restore it with that version")
	ErrNewer   = errors.New("this backup was written by a newer version of carstate: restore it with that or a newer one")
	ErrTorn    = errors.New("this backup is cut off or damaged: take another one, or use an older file")
	ErrUnfit   = errors.New("this backup has a record that carstate cannot have written, so nothing of it is restored")

	ErrUnauthentic = errors.New("this backup was changed, or no key that was given is that of the service that made it: " +
		"give the key that `carstate operator backup-key` printed there (--backup-key-file)")
)

type Header struct {
	Version    string    `json:"version"`
	Began      time.Time `json:"began"`
	Partitions int       `json:"partitions"`
}

type Writer struct {
	w    *bufio.Writer
	hash hash.Hash
	key  string
	n    int

	frame []byte
}

func NewWriter(w io.Writer, h Header, key string) (*Writer, error) {
	sum := sha256.New()
	b := &Writer{w: bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10), hash: sum, key: key}
	if _, err := b.w.WriteString(magic + version); err != nil {
		return b, err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return b, err
	}
	return b, b.Add(headerSubject, codec.Seal(headerSubject, append([]byte{0}, text...)))
}

// After an error of Add, the backup must be discarded.
func (b *Writer) Add(subject string, sealed []byte) error {
	frame := binary.AppendUvarint(append(b.frame[:0], make([]byte, 8)...), uint64(len(subject)))
	frame = append(append(frame, subject...), sealed...)
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-8))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], codec.Castagnoli))
	b.frame = frame
	b.n++
	_, err := b.w.Write(frame)
	return err
}

func (b *Writer) Records() int { return b.n - 1 } // the first is the header

// End does not close the underlying writer.
func (b *Writer) End() error {
	if _, err := b.w.Write(make([]byte, 8)); err != nil {
		return err
	}
	if err := b.w.Flush(); err != nil { // so that hash has all bytes
		return err
	}
	sum := b.hash.Sum(nil)
	if _, err := b.w.Write(append(sum, macOf(sum, b.key)...)); err != nil {
		return err
	}
	return b.w.Flush()
}

func macOf(sum []byte, key string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(sum)
	return mac.Sum(nil)
}

type Record struct {
	Subject      string
	Body, Sealed []byte
}

type Reader struct {
	r    *bufio.Reader
	hash hash.Hash
	buf  []byte

	sum, mac []byte // from the end of the file; nil until it is verified
}

// The error of Open is [ErrForeign], [ErrOlder], [ErrNewer] or [ErrTorn], or wraps that of r.
func Open(r io.Reader) (*Reader, Header, error) {
	h := sha256.New()
	b := &Reader{r: bufio.NewReaderSize(r, 64<<10), hash: h}
	var header Header
	beginning := make([]byte, len(magic)+len(version))
	n, err := io.ReadFull(b.r, beginning)
	h.Write(beginning)
	switch {
	case !bytes.HasPrefix(beginning[:n], []byte(magic)):
		return nil, header, ErrForeign
	case err != nil:
		return nil, header, ErrTorn
	case string(beginning[len(magic):]) < version:
		return nil, header, ErrOlder
	case string(beginning[len(magic):]) != version:
		return nil, header, ErrNewer
	}
	first, err := b.Next()
	if err != nil {
		return nil, header, err
	}
	if first.Subject != headerSubject || json.Unmarshal(first.Body, &header) != nil {
		return nil, header, ErrTorn
	}
	return b, header, nil
}

// Next returns a record that is valid until the next call, and io.EOF after the last if the file is
// complete. The error is [ErrTorn] or [ErrNewer], or wraps that of the underlying reader.
func (b *Reader) Next() (Record, error) {
	var head [8]byte
	if err := b.read(head[:]); err != nil {
		return Record{}, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	if n == 0 {
		return Record{}, b.end()
	}
	if n > maxFrame {
		return Record{}, ErrTorn
	}
	if cap(b.buf) < n {
		b.buf = make([]byte, n)
	}
	frame := b.buf[:n]
	if err := b.read(frame); err != nil {
		return Record{}, err
	}
	if crc32.Checksum(frame, codec.Castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return Record{}, ErrTorn
	}
	length, at := binary.Uvarint(frame)
	if at <= 0 || length > uint64(n-at) {
		return Record{}, ErrTorn
	}
	end := at + int(length)
	subject, sealed := string(frame[at:end]), frame[end:]
	body, err := codec.Unseal(subject, sealed)
	switch {
	case errors.Is(err, codec.ErrNewer):
		return Record{}, fmt.Errorf("%w (%w)", ErrNewer, err)
	case err != nil:
		return Record{}, ErrTorn
	}
	return Record{Subject: subject, Body: body, Sealed: sealed}, nil
}

func (b *Reader) read(p []byte) error {
	_, err := io.ReadFull(b.r, p)
	b.hash.Write(p)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrTorn
	}
	return fmt.Errorf("the backup cannot be read: %w", err)
}

func (b *Reader) end() error {
	want := b.hash.Sum(nil)
	last := make([]byte, 2*sha256.Size)
	if err := b.read(last); err != nil {
		return err
	}
	sum := last[:sha256.Size]
	if _, err := b.r.ReadByte(); !bytes.Equal(sum, want) || err != io.EOF {
		return ErrTorn
	}
	b.sum, b.mac = sum, last[sha256.Size:]
	return io.EOF
}

// Authentic is false until [Reader.Next] has returned io.EOF, and for an empty key.
func (b *Reader) Authentic(key string) bool {
	return b.sum != nil && key != "" && hmac.Equal(b.mac, macOf(b.sum, key))
}
