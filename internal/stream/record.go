package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Every record that the package stores is sealed: one byte of schema version,
// the body, and a CRC-32C of subject, version and body. The engine checks its
// own blocks; this check also catches a record that turns up under a subject
// that is not its own.

// schemaVersion is the version of the bodies written now. Version 1 had states
// without ways. No other version is read.
const schemaVersion = 2

const sealBytes = 1 + crc32.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of unseal. They mean that the store is damaged or newer than we are;
// nothing read after one of them can be trusted.
var (
	errDamaged = errors.New("a stored record is damaged")
	errNewer   = errors.New("a stored record was written by a newer carstate")
)

// otherVersion is the schema version of a record that this version does not read. It is
// an errNewer to [errors.Is], older or not: nothing may be concluded from the record.
type otherVersion byte

func (v otherVersion) Error() string {
	if v > schemaVersion {
		return fmt.Sprintf("%v: schema version %d", errNewer, byte(v))
	}
	return fmt.Sprintf("a stored record was written by an older carstate, which this version does not read: schema version %d", byte(v))
}

// Is makes errors.Is(err, errNewer) hold.
func (otherVersion) Is(err error) bool { return err == errNewer }

// seal finishes a record whose first byte was left for the version.
func seal(subject string, record []byte) []byte {
	record[0] = schemaVersion
	return binary.LittleEndian.AppendUint32(record, checksum(subject, record))
}

// unseal checks a record and returns its body.
func unseal(subject string, record []byte) ([]byte, error) {
	if len(record) < sealBytes {
		return nil, fmt.Errorf("%w: %d bytes are too few", errDamaged, len(record))
	}
	body, sum := record[:len(record)-crc32.Size], record[len(record)-crc32.Size:]
	if binary.LittleEndian.Uint32(sum) != checksum(subject, body) {
		return nil, fmt.Errorf("%w: its checksum does not match", errDamaged)
	}
	if v := body[0]; v != schemaVersion {
		return nil, otherVersion(v)
	}
	return body[1:], nil
}

func checksum(subject string, record []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(subject), castagnoli), castagnoli, record)
}
