package backup

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
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

// The format of the file:
//
//	"carstate backup 3\n"
//	frames: uint32 length, uint32 CRC-32C of the rest of the frame, uvarint length of the
//	        subject, subject, the sealed record
//	an empty frame: two zero uint32
//	32 bytes SHA-256 of all bytes before
//	32 bytes HMAC-SHA-256 of these 32 bytes, with the backup key of the service that wrote it
//
// The first record is the header. Numbers are little endian.
const (
	magic         = "carstate backup "
	version       = "3\n"
	headerSubject = "backup.header"
	maxFrame      = 1<<20 + 1024 // The largest record has 1 MiB.
)

const (
	errForeign access.BadBackup = "not a carstate backup"
	errOlder   access.BadBackup = "this backup was written by an older version of carstate: restore it with that version"
	errNewer   access.BadBackup = "this backup was written by a newer version of carstate: restore it with that or a newer one"
	errTorn    access.BadBackup = "this backup is cut off or damaged: take another one, or use an older file"
	errUnfit   access.BadBackup = "this backup has a record that carstate cannot have written, so nothing of it is restored"

	errUnauthentic access.BadBackup = "this backup was changed, or no key that was given is that of the service that made it: " +
		"give the key that `carstate operator backup-key` printed there (--backup-key-file)"
)

type header struct {
	Version    string    `json:"version"`
	Began      time.Time `json:"began"`
	Partitions int       `json:"partitions"`
}

type writer struct {
	w    *bufio.Writer
	hash hash.Hash
	key  string
	n    int // of records, with the header
}

func newWriter(w io.Writer, h header, key string) (*writer, error) {
	sum := sha256.New()
	b := &writer{w: bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10), hash: sum, key: key}
	_, _ = b.w.WriteString(magic + version) // every later call returns the error, too
	text, err := json.Marshal(h)
	if err != nil {
		return b, err
	}
	return b, b.add(sealed(headerSubject, text))
}

func sealed(subject string, body []byte) store.Record {
	return store.Record{Subject: subject, Sealed: codec.Seal(subject, append([]byte{0}, body...))}
}

func (b *writer) add(r store.Record) error {
	frame := binary.AppendUvarint(make([]byte, 8), uint64(len(r.Subject)))
	frame = append(append(frame, r.Subject...), r.Sealed...)
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-8))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], codec.Castagnoli))
	b.n++
	_, err := b.w.Write(frame)
	return err
}

func (b *writer) end() error {
	_, _ = b.w.Write(make([]byte, 8))   // Flush returns the error, too
	if err := b.w.Flush(); err != nil { // so that hash has all bytes
		return err
	}
	sum := b.hash.Sum(nil)
	_, _ = b.w.Write(append(sum, macOf(sum, b.key)...))
	return b.w.Flush()
}

func macOf(sum []byte, key string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(sum)
	return mac.Sum(nil)
}

type reader struct {
	r    io.Reader // also writes to hash
	hash hash.Hash

	sum, mac []byte // from the end of the file; nil until it is verified
}

func open(r io.Reader) (*reader, header, error) {
	h := sha256.New()
	b := &reader{r: io.TeeReader(bufio.NewReaderSize(r, 64<<10), h), hash: h}
	var head header
	beginning := make([]byte, len(magic)+len(version))
	n, err := io.ReadFull(b.r, beginning)
	switch {
	case !bytes.HasPrefix(beginning[:n], []byte(magic)):
		return nil, head, errForeign
	case err != nil:
		return nil, head, errTorn
	case string(beginning[len(magic):]) < version:
		return nil, head, errOlder
	case string(beginning[len(magic):]) != version:
		return nil, head, errNewer
	}
	first, err := b.next()
	if err != nil {
		return nil, head, err
	}
	if first.Subject != headerSubject || json.Unmarshal(first.Body, &head) != nil {
		return nil, head, errTorn
	}
	return b, head, nil
}

// next returns io.EOF after the last record if the file is complete. Any other error is errTorn or
// errNewer, or wraps that of the underlying reader.
func (b *reader) next() (r store.Record, err error) {
	var head [8]byte
	if err := b.read(head[:]); err != nil {
		return r, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	if n == 0 {
		return r, b.end()
	}
	if n > maxFrame {
		return r, errTorn
	}
	frame := make([]byte, n)
	if err := b.read(frame); err != nil {
		return r, err
	}
	if crc32.Checksum(frame, codec.Castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return r, errTorn
	}
	rest := codec.Reader{Rest: frame}
	if r.Subject = string(rest.Counted()); rest.Short {
		return r, errTorn
	}
	r.Sealed = rest.Rest
	r.Body, err = codec.Unseal(r.Subject, r.Sealed)
	return r, refusal(err)
}

func (b *reader) each(do func(r store.Record, kind string) error) error {
	for {
		r, err := b.next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			kind, _, _ := strings.Cut(r.Subject, ".")
			err = do(r, kind)
		}
		if err != nil {
			return err
		}
	}
}

func (b *reader) read(p []byte) error {
	_, err := io.ReadFull(b.r, p)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errTorn
	}
	return fmt.Errorf("the backup cannot be read: %w", err)
}

func (b *reader) end() error {
	want := b.hash.Sum(nil)
	last := make([]byte, 2*sha256.Size)
	if err := b.read(last); err != nil {
		return err
	}
	sum := last[:sha256.Size]
	if _, err := io.ReadFull(b.r, make([]byte, 1)); !bytes.Equal(sum, want) || err != io.EOF {
		return errTorn
	}
	b.sum, b.mac = sum, last[sha256.Size:]
	return io.EOF
}

// authentic is false until next has returned io.EOF, and for an empty key.
func (b *reader) authentic(key string) bool {
	return b.sum != nil && key != "" && hmac.Equal(b.mac, macOf(b.sum, key))
}
