// Package codec defines the stored formats: subjects, seals, and the packing of samples and states.
//
// A sealed record is a byte of schema version, the body, and a CRC-32C of subject, version and
// body. Only the seal detects a record that is found at the wrong subject.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Records of another SchemaVersion are not read.
const SchemaVersion = 7

// MessageVersion is the schema version in which the layout of messages between nodes that no stream
// stores last changed, apart from states in them. Nodes of different schema versions can thus
// understand each other.
const MessageVersion = 7

const SealBytes = 1 + crc32.Size // schema version and checksum

var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	ErrDamaged = errors.New("a stored record is damaged")
	ErrNewer   = errors.New("a stored record was written by a newer version of carstate")
)

// IsNewer reports whether err says that a newer version, not an older one, wrote a record.
func IsNewer(err error) bool {
	v, other := errors.AsType[otherVersion](err)
	return errors.Is(err, ErrNewer) && (!other || v.found > v.read)
}

// [errors.Is] treats otherVersion as [ErrNewer] even if it is older, because this version can
// decode neither.
type otherVersion struct{ found, read byte }

func (v otherVersion) Error() string {
	if v.found > v.read {
		return fmt.Sprintf("%v: schema version %d", ErrNewer, v.found)
	}
	return fmt.Sprintf("a stored record has the older schema version %d, which this carstate cannot read", v.found)
}

func (otherVersion) Is(err error) bool { return err == ErrNewer }

// Seal sets the first byte of record to the schema version, and appends a checksum of subject and
// record. The body begins at the second byte. Seal may reuse the memory of record.
func Seal(subject string, record []byte) []byte { return seal(subject, record, SchemaVersion) }

// SealMessage is like Seal, for a message that no stream stores.
func SealMessage(subject string, m []byte) []byte { return seal(subject, m, MessageVersion) }

func seal(subject string, record []byte, version byte) []byte {
	record[0] = version
	return binary.LittleEndian.AppendUint32(record, Checksum(subject, record))
}

func Unseal(subject string, r []byte) ([]byte, error) { return unseal(subject, r, SchemaVersion) }

// CheckVersion returns [ErrNewer] if this version cannot read records of the schema version v.
func CheckVersion(v byte) error { return check(v, SchemaVersion) }

func check(v, read byte) error {
	if v != read {
		return otherVersion{v, read}
	}
	return nil
}

func UnsealMessage(subject string, m []byte) ([]byte, error) {
	return unseal(subject, m, MessageVersion)
}

func unseal(subject string, record []byte, version byte) ([]byte, error) {
	if len(record) < SealBytes {
		return nil, fmt.Errorf("%w: too short: %d bytes", ErrDamaged, len(record))
	}
	body, sum := record[:len(record)-crc32.Size], record[len(record)-crc32.Size:]
	if binary.LittleEndian.Uint32(sum) != Checksum(subject, body) {
		return nil, fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	return body[1:], check(body[0], version)
}

func Checksum(subject string, record []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(subject), Castagnoli), Castagnoli, record)
}
