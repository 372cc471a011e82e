package road

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"carstate/internal/vehicle"
)

// outbox holds what this node's cars have shown of the roads, their evidence, until it is sent to
// the other nodes of the cluster. Its mutex mu guards waiting.
type outbox struct {
	sharing atomic.Bool
	mu      sync.Mutex
	waiting []evidence
}

// mostWaiting is the maximum number of pieces of evidence (what cars have shown of roads) in the
// outbox. They take about 3 MB. Evidence that does not fit is not sent, so the other nodes miss
// some seconds of this node's traffic.
const mostWaiting = 1 << 16

// Share makes the map collect what this node's cars show of the roads (evidence) after this call.
// [Map.Drain] returns the collected evidence.
func (m *Map) Share() { m.out.sharing.Store(true) }

func (o *outbox) add(e evidence) {
	if !o.sharing.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) < mostWaiting {
		o.waiting = append(o.waiting, e)
	}
}

// evidenceBytes is the length of a packed piece of evidence, in bytes. Its parts, all little
// endian, are
//
//	uint64   the stretch
//	uint64   the stretch from which the car came
//	uint32   seconds since 1970
//	float32  metres driven on the stretch; float32 seconds
//	float32  metres driven on the stretch from which the car came; float32 seconds
//	byte     the car's voice, the number by which the car is counted
const evidenceBytes = 8 + 8 + 4 + 4*4 + 1

// Drain returns the evidence since the last call: how far and how long this node's cars drove on
// which stretches. It is packed in messages for [Map.Absorb] on other nodes. The parameter most is
// the maximum length of a message in bytes, but a message has at least one piece of evidence. If
// there is no evidence, or [Map.Share] was not called, the result is nil.
func (m *Map) Drain(most int) (messages [][]byte) {
	m.out.mu.Lock()
	waiting := m.out.waiting
	m.out.waiting = nil
	m.out.mu.Unlock()
	var b []byte
	for i, e := range waiting {
		b = appendEvidence(b, e)
		if len(b)+evidenceBytes > most || i == len(waiting)-1 {
			messages = append(messages, b)
			b = nil
		}
	}
	return messages
}

func appendEvidence(b []byte, e evidence) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(e.stretch))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.from))
	b = binary.LittleEndian.AppendUint32(b, e.unix)
	for _, v := range [...]float32{e.metres, e.seconds, e.fromMetres, e.fromSeconds} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return append(b, e.voice)
}

// errMalformed is the error for bytes that are not evidence, profiles or a tile.
var errMalformed = errors.New("malformed")

// Absorb adds to the map what another node's cars have shown of the roads. The message is one that
// [Map.Drain] returned on that node. If any part of it is malformed, Absorb returns an error and
// adds nothing.
func (m *Map) Absorb(message []byte) error {
	if len(message)%evidenceBytes != 0 {
		return errMalformed
	}
	all := make([]evidence, 0, len(message)/evidenceBytes)
	for b := message; len(b) > 0; b = b[evidenceBytes:] {
		number := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[at:])) }
		e := evidence{
			stretch: vehicle.Stretch(binary.LittleEndian.Uint64(b)),
			from:    vehicle.Stretch(binary.LittleEndian.Uint64(b[8:])),
			unix:    binary.LittleEndian.Uint32(b[16:]), metres: number(20), seconds: number(24), voice: b[36] % 32,
			fromMetres: number(28), fromSeconds: number(32),
		}
		if !Valid(e.stretch) || e.from != 0 && !Valid(e.from) || !plausible(e.metres, e.seconds) ||
			!plausible(e.fromMetres, e.fromSeconds) {
			return errMalformed
		}
		all = append(all, e)
	}
	for _, e := range all {
		m.apply(&e, nil)
	}
	return nil
}

// plausible reports whether a car can have driven metres and seconds on a stretch: 0 to 1,000,000
// each.
func plausible(metres, seconds float32) bool {
	return metres >= 0 && metres <= 1e6 && seconds >= 0 && seconds <= 1e6
}
