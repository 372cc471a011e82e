package local

import (
	"encoding/binary"
	"strconv"
	"strings"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local/damage"
	"example.org/carstate/internal/vehicle"
)

// First bytes of the keys of all data that is not a record of a stream, such as telemetry. The
// package comment explains all keys.
const (
	letterTelemetry = 'L'
	letterCursor    = 'C'
	letterEnd       = 'M'
	letterAnswers   = 'V'
)

// letters maps each stream of records to the first letter of its keys.
var letters = map[string]byte{
	codec.States: 'S', codec.Tokens: 'T', codec.Sources: 'O', codec.Roads: 'R', codec.Audit: 'A',
}

// hashBytes is the number of bytes of a subject's hash in a key. A subject is the name of a record
// in its stream. The hash is the first bytes of the subject's HMAC-SHA-256 under identity.Key.
const hashBytes = damage.TailBytes

// keyOf returns the key of the record with the given subject in the stream with the given letter.
// The stream is not AUDIT, whose keys contain no subject. The key of a state begins with its
// partition, so that an owner reads only its own states.
func (e *Engine) keyOf(letter byte, subject string) []byte {
	sum := e.hasher.Sum(subject)
	if rest, ok := strings.CutPrefix(subject, "state."); ok {
		number, _, _ := strings.Cut(rest, ".")
		p, _ := strconv.ParseUint(number, 10, 16) // codec.StateSubject has written it
		return append(stateKey(int(p)), sum[:hashBytes-2]...)
	}
	return append([]byte{letter}, sum[:hashBytes]...)
}

// stateKey returns the part of a state's key that is the same for all states of partition p.
func stateKey(p int) []byte {
	return binary.BigEndian.AppendUint16([]byte{letters[codec.States]}, uint16(p))
}

func statesSpan(p int) (from, to []byte) { return stateKey(p), stateKey(p + 1) }

func telemetryKey(p int, seq uint64) []byte {
	k := binary.BigEndian.AppendUint16([]byte{letterTelemetry}, uint16(p))
	return binary.BigEndian.AppendUint64(k, seq)
}

// sequenceOf returns the sequence in the last 8 bytes of a key of telemetry or of AUDIT.
func sequenceOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func cursorKey(p int) []byte { return binary.BigEndian.AppendUint16([]byte{letterCursor}, uint16(p)) }

func auditKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{letters[codec.Audit]}, seq)
}

// aheadKey returns the key of the last sequence that is folded into a stored state of partition p,
// which may be ahead of the cursor. No group may get such a sequence again.
func aheadKey(p int) []byte {
	return binary.BigEndian.AppendUint16([]byte{letterEnd, letterTelemetry}, uint16(p))
}

func endKey(letter byte) []byte { return []byte{letterEnd, letter} }

func span(letter byte) (from, to []byte) { return []byte{letter}, []byte{letter + 1} }

// appendRecord appends a record in its stored form: its sequence, the sequence of TELEMETRY up to
// which a state is folded, the length of its subject, its subject, and the sealed record.
func appendRecord(b []byte, seq, folded uint64, subject string, sealed []byte) []byte {
	b = binary.AppendUvarint(b, seq)
	b = binary.AppendUvarint(b, folded)
	b = binary.AppendUvarint(b, uint64(len(subject)))
	b = append(b, subject...)
	return append(b, sealed...)
}

func decodeRecord(value []byte) (r store.Record, err error) {
	var numbers [3]uint64 // sequence, folded, length of the subject
	for i := range numbers {
		n := 0
		if numbers[i], n = binary.Uvarint(value); n <= 0 {
			return r, codec.ErrDamaged
		}
		value = value[n:]
	}
	length := numbers[2]
	if uint64(len(value)) <= length {
		return r, codec.ErrDamaged
	}
	r = store.Record{Seq: numbers[0], Folded: numbers[1], Subject: string(value[:length]), Sealed: value[length:]}
	r.Body, err = codec.Unseal(r.Subject, r.Sealed)
	return r, err
}

// answersKey returns the key that holds a vehicle's answers, given the key of the vehicle's state:
// without the partition, so that keys divide the fleet equally among the goroutines of a start.
func answersKey(state []byte) []byte {
	return append([]byte{letterAnswers}, state[len(stateKey(0)):]...)
}

// answerBytes is the size in bytes of a vehicle's stored answers without the vid at their end. The
// driving state, the flag NotDriving and the state of the throttle system take 1 byte each, and the
// times of the two verdicts 8 bytes each.
const answerBytes = 3 + 8 + 8

// appendAnswers appends the answers of a vehicle in their stored form.
func appendAnswers(b []byte, id vehicle.ID, s *vehicle.State) []byte {
	d, t := s.Driving(), s.Throttle()
	driving := byte(0)
	if d.NotDriving {
		driving = 1
	}
	b = append(b, byte(d.State), driving, byte(t.System))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Time))
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Time))
	return append(b, id...)
}

func decodeAnswers(b []byte) (id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict, err error) {
	if len(b) <= answerBytes {
		return id, d, t, codec.ErrDamaged
	}
	driven := vehicle.UnixMilli(binary.LittleEndian.Uint64(b[3:]))
	throttled := vehicle.UnixMilli(binary.LittleEndian.Uint64(b[11:]))
	d = vehicle.DrivingVerdict{State: vehicle.DrivingState(b[0]), NotDriving: b[1] != 0, Time: driven}
	t = vehicle.ThrottleVerdict{System: vehicle.ThrottleSystem(b[2]), Time: throttled}
	return vehicle.ID(b[answerBytes:]), d, t, nil
}
