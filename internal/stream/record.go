package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"carstate/internal/broken"
)

// Every record that the package stores is sealed: one byte of schema version,
// the body, and a CRC-32C of subject, version and body. The engine checks its
// own blocks; this check also catches a record that turns up under a subject
// that is not its own.

// schemaVersion is the version of the bodies written now. Version 1 was the
// first.
const schemaVersion = 1

const sealBytes = 1 + crc32.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of unseal. They mean that the store is damaged or newer than we are;
// nothing read after one of them can be trusted.
var (
	errDamaged = errors.New("a stored record is damaged")
	errNewer   = errors.New("a stored record was written by a newer carstate")
)

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
	if binary.LittleEndian.Uint32(sum) != checksum(subject, body) && !broken.Has(broken.UncheckedRecords) {
		return nil, fmt.Errorf("%w: its checksum does not match", errDamaged)
	}
	if v := body[0]; v != schemaVersion {
		return nil, fmt.Errorf("%w: schema version %d", errNewer, v)
	}
	return body[1:], nil
}

func checksum(subject string, record []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(subject), castagnoli), castagnoli, record)
}
