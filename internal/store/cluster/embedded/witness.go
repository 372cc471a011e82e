package embedded

import (
	"encoding/binary"
	"sync/atomic"

	"carstate/internal/store/codec"
)

// Newest holds, for each stream, the newest sequence that is known to be stored.
//
// The end of a stream's newest block looks the same after a crash whether a commit
// that nobody was told of was torn off or records that were acknowledged. So the
// streams witness for each other: every heartbeat says how far all of them were
// acknowledged when it was written. With an engine that syncs each write, a stream
// that ends before that has lost something. What was acknowledged after the last
// heartbeat has no witness: up to a second of samples and states. A token, a
// source or an event has one at once.
type Newest map[string]*atomic.Uint64

// NewNewest knows of nothing stored yet.
func NewNewest() Newest {
	n := make(Newest)
	for _, name := range codec.WholeStreams {
		n[name] = new(atomic.Uint64)
	}
	return n
}

// Note takes in that a stream holds a sequence. Safe for concurrent use.
func (n Newest) Note(stream string, seq uint64) {
	is := n[stream]
	if is == nil {
		return // ROADS need not be whole
	}
	for {
		old := is.Load()
		if seq <= old || is.CompareAndSwap(old, seq) {
			return
		}
	}
}

// Append adds all of it to a heartbeat.
func (n Newest) Append(b []byte) []byte {
	for _, name := range codec.WholeStreams {
		b = binary.LittleEndian.AppendUint64(b, n[name].Load())
	}
	return b
}

// witness takes in what a stored heartbeat says. Those of older versions, and of
// engines that do not sync each write, say nothing.
func (n Newest) witness(r storedRecord) {
	body, err := codec.Unseal(string(r.subject), r.payload)
	if err != nil || len(body) != codec.HeartbeatBytes+8*len(codec.WholeStreams) {
		return
	}
	for i, name := range codec.WholeStreams {
		n.Note(name, binary.LittleEndian.Uint64(body[codec.HeartbeatBytes+8*i:]))
	}
}
