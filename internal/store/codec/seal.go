// Package codec has the stored formats: under which subject a record lies, how it is
// sealed, and how samples and states are packed. Tests pin each to the byte.
//
// Every record is sealed: one byte of schema version, the body, and a CRC-32C of
// subject, version and body. An engine may check its own files; this check also
// catches a record that turns up under a subject that is not its own.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// SchemaVersion is the version of the bodies written now. Version 1 had states
// without ways, version 2 a form of record for each kind of credential. No other
// version is read.
const SchemaVersion = 3

// SealBytes is what a seal adds to a body.
const SealBytes = 1 + crc32.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of [Unseal]. They mean that the store is damaged or newer than we are;
// nothing read after one of them can be trusted.
var (
	ErrDamaged = errors.New("a stored record is damaged")
	ErrNewer   = errors.New("a stored record was written by a newer carstate")
)

// IsNewer reports whether an error says that a newer version wrote a record. [ErrNewer] alone
// stands for a record of an older version too.
func IsNewer(err error) bool {
	v, other := errors.AsType[otherVersion](err)
	return errors.Is(err, ErrNewer) && (!other || v > SchemaVersion)
}

// otherVersion is the schema version of a record that this version does not read. It is
// an [ErrNewer] to [errors.Is], older or not: nothing may be concluded from the record.
type otherVersion byte

func (v otherVersion) Error() string {
	if v > SchemaVersion {
		return fmt.Sprintf("%v: schema version %d", ErrNewer, byte(v))
	}
	return fmt.Sprintf("a stored record was written by an older carstate, which this version does not read: schema version %d", byte(v))
}

// Is makes errors.Is(err, ErrNewer) hold.
func (otherVersion) Is(err error) bool { return err == ErrNewer }

// Seal finishes a record whose first byte was left for the version.
func Seal(subject string, record []byte) []byte {
	record[0] = SchemaVersion
	return binary.LittleEndian.AppendUint32(record, Checksum(subject, record))
}

// Unseal checks a record and returns its body.
func Unseal(subject string, record []byte) ([]byte, error) {
	if len(record) < SealBytes {
		return nil, fmt.Errorf("%w: %d bytes are too few", ErrDamaged, len(record))
	}
	body, sum := record[:len(record)-crc32.Size], record[len(record)-crc32.Size:]
	if binary.LittleEndian.Uint32(sum) != Checksum(subject, body) {
		return nil, fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	if v := body[0]; v != SchemaVersion {
		return nil, otherVersion(v)
	}
	return body[1:], nil
}

// Checksum is the sum with which a record ends.
func Checksum(subject string, record []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(subject), castagnoli), castagnoli, record)
}
