package local

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Letters with which keys begin; doc.go says what each holds.
const (
	letterTelemetry = 'L'
	letterCursor    = 'C'
	letterAnswer    = 'V'
	letterEnd       = 'M'
)

// letters of the streams of records.
var letters = map[string]byte{codec.States: 'S', codec.Tokens: 'T', codec.Sources: 'O', codec.Roads: 'R', codec.Audit: 'A'}

// hashBytes is what a key has of a subject's hash.
const hashBytes = 16

// hasher hashes subjects under the key of the data directory.
type hasher struct {
	mac hash.Hash
	in  []byte
	sum [sha256.Size]byte
}

func newHasher(key []byte) *hasher { return &hasher{mac: hmac.New(sha256.New, key)} }

// keyOf returns the key of a subject's record.
func (e *Engine) keyOf(letter byte, subject string) []byte {
	h := e.hashers.Get().(*hasher)
	defer e.hashers.Put(h)
	h.in = append(h.in[:0], subject...)
	h.mac.Reset()
	h.mac.Write(h.in)
	return append([]byte{letter}, h.mac.Sum(h.sum[:0])[:hashBytes]...)
}

// answerKey is the key of what is answered about the vehicle whose state has a key.
func answerKey(state []byte) []byte { return append([]byte{letterAnswer}, state[1:]...) }

func telemetryKey(p int, seq uint64) []byte {
	k := binary.BigEndian.AppendUint16([]byte{letterTelemetry}, uint16(p))
	return binary.BigEndian.AppendUint64(k, seq)
}

// sequenceOf takes the sequence from the end of a key.
func sequenceOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func cursorKey(p int) []byte { return binary.BigEndian.AppendUint16([]byte{letterCursor}, uint16(p)) }

func auditKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{letters[codec.Audit]}, seq)
}

func endKey(letter byte) []byte { return []byte{letterEnd, letter} }

// span is all keys that begin with a letter.
func span(letter byte) (from, to []byte) { return []byte{letter}, []byte{letter + 1} }

// A stored record is its sequence, its subject with its length, and the sealed record.

func appendRecord(b []byte, seq uint64, subject string, sealed []byte) []byte {
	b = binary.AppendUvarint(b, seq)
	b = binary.AppendUvarint(b, uint64(len(subject)))
	b = append(b, subject...)
	return append(b, sealed...)
}

// recordSize is room for any record that appendRecord makes.
func recordSize(subject string, sealed []byte) int {
	return 2*binary.MaxVarintLen64 + len(subject) + len(sealed)
}

// decodeRecord takes a stored record apart and checks it.
func decodeRecord(value []byte) (r store.Record, err error) {
	var n, m int
	r.Seq, n = binary.Uvarint(value)
	length, m := binary.Uvarint(value[max(n, 0):])
	if n <= 0 || m <= 0 || uint64(len(value)-n-m) < length {
		return store.Record{}, codec.ErrDamaged
	}
	value = value[n+m:]
	r.Subject, r.Sealed = string(value[:length]), value[length:]
	r.Body, err = codec.Unseal(r.Subject, r.Sealed)
	return r, err
}

// A stored answer is the vid with its length and the two verdicts: state, whether the car
// is not driving, and time; system and time.

func appendAnswer(b []byte, id vehicle.ID, s *vehicle.State) []byte {
	d, t := s.Driving(), s.Throttle()
	b = binary.AppendUvarint(b, uint64(len(id)))
	b = append(b, id...)
	driving := byte(0)
	if d.NotDriving {
		driving = 1
	}
	b = append(b, byte(d.State), driving)
	b = binary.AppendVarint(b, int64(d.Time))
	b = append(b, byte(t.System))
	return binary.AppendVarint(b, int64(t.Time))
}

var errAnswer = errors.New("a stored answer makes no sense")

func decodeAnswer(b []byte) (id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict, err error) {
	length, n := binary.Uvarint(b)
	if n <= 0 || uint64(len(b)-n) < length+5 {
		return id, d, t, errAnswer
	}
	id, b = vehicle.ID(b[n:n+int(length)]), b[n+int(length):]
	d.State, d.NotDriving = vehicle.DrivingState(b[0]), b[1] != 0
	at, n := binary.Varint(b[2:])
	if n <= 0 || len(b) < n+4 {
		return id, d, t, errAnswer
	}
	d.Time, b = vehicle.UnixMilli(at), b[2+n:]
	t.System = vehicle.ThrottleSystem(b[0])
	if at, n = binary.Varint(b[1:]); n != len(b)-1 {
		return id, d, t, errAnswer
	}
	t.Time = vehicle.UnixMilli(at)
	return id, d, t, nil
}
