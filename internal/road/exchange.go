package road

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"example.org/carstate/internal/vehicle"
)

// evidence is what a car showed of a stretch between two of its positions: how far and how long it
// drove there. The order and the types of the fields are part of a format (see pack).
type evidence struct {
	Stretch vehicle.Stretch
	// If the car has just entered this stretch, From is the stretch from which it came; FromMetres
	// and FromSeconds are how far and how long it drove there.
	From                    vehicle.Stretch
	Unix                    uint32 // seconds since 1970
	Metres, Seconds         float32
	FromMetres, FromSeconds float32
	Voice                   uint8 // the number by which the car is counted
	Gap                     uint8 // time between the two positions, in seconds; at most 255
	// Source is the number of the source, whose cars are one voice. It is 0 if each car is a voice.
	Source uint32
}

// outbox holds this node's evidence until it is sent to the other nodes. mu guards waiting.
type outbox struct {
	sharing atomic.Bool
	mu      sync.Mutex
	waiting []evidence
}

// mostWaiting is the maximum number of pieces of evidence in the outbox. They take about 3 MB.
// Evidence that does not fit is not sent.
const mostWaiting = 1 << 16

// Share makes the map collect the evidence of this node's cars from now on, for [Map.Drain].
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

// evidenceBytes is the length of a packed piece of evidence, in bytes.
const evidenceBytes = 8 + 8 + 4 + 4*4 + 2 + 4

// Drain returns the evidence since the last call: how far and how long this node's cars drove on
// which stretches. It is packed in messages for [Map.Absorb] on other nodes. A message has at most
// the given number of bytes, but at least one piece of evidence. If there is no evidence, or
// [Map.Share] was not called, Drain returns nil.
func (m *Map) Drain(most int) (messages [][]byte) {
	m.out.mu.Lock()
	waiting := m.out.waiting
	m.out.waiting = nil
	m.out.mu.Unlock()
	for some := range slices.Chunk(waiting, max(1, most/evidenceBytes)) {
		messages = append(messages, pack(some...))
	}
	return messages
}

// pack returns the fields of each piece of evidence in their order, little endian.
func pack(some ...evidence) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, some)
	if err != nil {
		panic(err) // cannot happen, because every field has a fixed size
	}
	return b
}

// errMalformed is the error for bytes that are not evidence, profiles or a tile.
var errMalformed = errors.New("malformed")

// Absorb adds the evidence in a message of another node's [Map.Drain] to the map. If any part of it
// is malformed, Absorb returns an error and adds nothing.
func (m *Map) Absorb(message []byte) error {
	all := make([]evidence, len(message)/evidenceBytes)
	if n, err := binary.Decode(message, binary.LittleEndian, all); err != nil || n != len(message) {
		return errMalformed
	}
	for i := range all {
		e := &all[i]
		if !Valid(e.Stretch) || e.From != 0 && !Valid(e.From) || !plausible(e.Metres, e.Seconds) ||
			!plausible(e.FromMetres, e.FromSeconds) {
			return errMalformed
		}
		e.Voice %= 32
	}
	for i := range all {
		m.apply(&all[i], nil)
	}
	return nil
}

func plausible(metres, seconds float32) bool {
	return metres >= 0 && metres <= 1e6 && seconds >= 0 && seconds <= 1e6
}
