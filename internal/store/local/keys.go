package local

import (
	"encoding/binary"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
)

const (
	letterTelemetry = 'L'
	letterEnd       = 'M'
)

var letters = map[string]byte{
	codec.States: 'S', codec.Tokens: 'T', codec.Sources: 'O', codec.Roads: 'R', codec.Audit: 'A',
}

const hashBytes = 16

// not of AUDIT, whose keys contain no subject
func (e *Engine) keyOf(letter byte, subject string) []byte {
	sum := e.hasher.Sum(subject)
	return append([]byte{letter}, sum[:hashBytes]...)
}

func telemetryKey(p int, seq uint64) []byte {
	k := binary.BigEndian.AppendUint16([]byte{letterTelemetry}, uint16(p))
	return binary.BigEndian.AppendUint64(k, seq)
}

// of a key of telemetry or AUDIT
func sequenceOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func auditKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{letters[codec.Audit]}, seq)
}

func endKey(letter byte) []byte { return []byte{letterEnd, letter} }

func span(letter byte) (from, to []byte) { return []byte{letter}, []byte{letter + 1} }

func appendRecord(b []byte, seq uint64, subject string, sealed []byte) []byte {
	b = binary.AppendUvarint(b, seq)
	b = binary.AppendUvarint(b, uint64(len(subject)))
	b = append(b, subject...)
	return append(b, sealed...)
}

func decodeRecord(value []byte) (r store.Record, err error) {
	var numbers [2]uint64 // sequence, length of the subject
	for i := range numbers {
		n := 0
		if numbers[i], n = binary.Uvarint(value); n <= 0 {
			return r, codec.ErrDamaged
		}
		value = value[n:]
	}
	length := numbers[1]
	if uint64(len(value)) <= length {
		return r, codec.ErrDamaged
	}
	r = store.Record{Seq: numbers[0], Subject: string(value[:length]), Sealed: value[length:]}
	r.Body, err = codec.Unseal(r.Subject, r.Sealed)
	return r, err
}
