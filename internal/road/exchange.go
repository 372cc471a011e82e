package road

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"example.org/carstate/internal/driving"
)

// The order and types of the fields of evidence are a format (see Drain).
type evidence struct {
	Stretch driving.Stretch
	// the stretch before, and what the car drove there, if it has just entered Stretch
	From                    driving.Stretch
	Unix                    uint32 // seconds since 1970
	Metres, Seconds         float32
	FromMetres, FromSeconds float32
	Voice                   uint8
	Gap                     uint8  // s between the positions, at most 255
	Source                  uint32 // 0 if each of its cars is a voice
}

// outbox has evidence for other nodes. mu guards waiting.
type outbox struct {
	sharing atomic.Bool
	mu      sync.Mutex
	waiting []evidence
}

// mostWaiting takes about 3 MB; the rest is not sent.
const mostWaiting = 1 << 16

// Share makes the map collect its evidence for [Map.Drain].
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

const evidenceBytes = 8 + 8 + 4 + 4*4 + 2 + 4

// Drain returns the evidence since the last call, in messages of at most most bytes.
func (m *Map) Drain(most int) (messages [][]byte) {
	m.out.mu.Lock()
	waiting := m.out.waiting
	m.out.waiting = nil
	m.out.mu.Unlock()
	for some := range slices.Chunk(waiting, max(1, most/evidenceBytes)) {
		message, _ := binary.Append(nil, binary.LittleEndian, some) // an evidence has a fixed size
		messages = append(messages, message)
	}
	return messages
}

var errMalformed = errors.New("malformed")

// Absorb adds a drained message, or nothing if it is malformed.
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
