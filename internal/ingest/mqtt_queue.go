package ingest

import (
	"context"
	"sync"
	"time"
)

// pending is a message that waits for its acknowledgement.
type pending struct {
	batch   *batch // to be stored; nil if the message was refused
	code    byte   // the reason of a refusal
	text    string // the reason in words, or what is not used of an accepted message
	outcome outcome
	qos     byte
	id      uint16
	since   time.Time   // when the message arrived
	memory  reservation // of the quota processing
	source  uint32
	samples int // unfolded samples of source that are reserved
}

// queue holds the messages of one connection from arrival to acknowledgement. While some messages
// are being stored, newer ones wait, and are then stored together. So a client that does not wait
// for each acknowledgement needs fewer commits than messages. One goroutine stores and
// acknowledges, so PUBACKs are sent in the order of the messages. The goroutine runs only while
// there are messages, so an idle connection needs no second goroutine.
type queue struct {
	mu      sync.Mutex // guards all other fields
	changed sync.Cond  // uses mu; signaled when waiting, bytes or working change
	waiting []pending
	bytes   int  // memory of the messages that wait or are being stored
	working bool // a goroutine is running drainQueue
	broken  bool // a message was not stored, so no later one may be stored
}

// wait waits until no message is left: each was acknowledged or, after a failure of the store,
// dropped. enqueue must not be called while wait runs.
func (q *queue) wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.working {
		q.changed.Wait()
	}
}

// enqueue adds a message to the queue of its connection. It blocks while receiveMaximum messages
// are waiting, or while the message would increase the memory of a queue that is not empty beyond
// maxQueued bytes. During that time, nothing is read from the client.
func (m *MQTT) enqueue(c *conn, p pending) {
	q := &c.queue
	bytes := messageBytes
	if p.batch != nil {
		bytes += p.batch.bytes
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) >= receiveMaximum || q.bytes > 0 && q.bytes+bytes > maxQueued {
		q.changed.Wait()
	}
	p.memory = c.processing.split(bytes)
	q.waiting = append(q.waiting, p)
	q.bytes += p.memory.bytes
	if !q.working {
		q.working = true
		go m.drainQueue(c)
	}
}

// drainQueue stores and acknowledges messages until the queue is empty. After messages that could
// not be stored, it drops all later ones without an acknowledgement.
func (m *MQTT) drainQueue(c *conn) {
	q := &c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		messages, broken := q.waiting, q.broken
		q.waiting = nil
		q.changed.Broadcast()
		q.mu.Unlock()

		if !broken {
			broken = !m.storeAndAcknowledge(c, messages)
		}

		q.mu.Lock()
		q.broken = broken
		for _, p := range messages {
			q.bytes -= p.memory.bytes
			p.memory.release()
			m.in.Unfolded.Release(p.source, p.samples)
		}
		if clear(messages); q.waiting == nil && cap(messages) == 1 { // as for a car, which waits for each PUBACK
			q.waiting = messages[:0]
		}
	}
	q.working = false
	q.changed.Broadcast()
}

// storeAndAcknowledge stores the messages together. It then acknowledges each message of QoS 1,
// refused ones included, and returns true. If the store fails, it acknowledges none, closes the
// connection and returns false. No later message of the connection may then be stored (DESIGN.md).
func (m *MQTT) storeAndAcknowledge(c *conn, messages []pending) bool {
	all := messages[0].batch
	if len(messages) > 1 || all == nil {
		all = newBatch(nil)
		for _, p := range messages {
			if p.batch != nil {
				all.join(p.batch)
				p.batch.free()
			}
		}
		all.sort()
	}
	defer all.free()
	if err := m.in.store(m.storeContext(), all); err != nil {
		for _, p := range messages {
			m.in.observe(p.since, unavailable)
		}
		c.part(&closing{serverBusy, errNotStored.text})
		return false
	}
	// If sending fails because the client has gone, the client will send the messages again.
	acks := c.acks[:0]
	for _, p := range messages {
		m.in.observe(p.since, p.outcome)
		if p.qos == 0 {
			continue
		}
		first := byte(pubackPacket)
		if p.qos == 2 {
			first = pubrecPacket
		}
		if c.version < 5 {
			p.code, p.text = 0, ""
		} else if p.text = c.fitting(p.text); c.terse {
			p.text = ""
		}
		acks = appendReason(acks, first, []byte{byte(p.id >> 8), byte(p.id)}, p.code, p.text)
		if len(acks) >= acksBytes {
			_, _ = c.Write(acks)
			acks = acks[:0]
		}
	}
	if len(acks) > 0 {
		_, _ = c.Write(acks)
	}
	return true
}

// acksBytes is the number of bytes from which PUBACKs are sent, to limit the memory that they use.
const acksBytes = 4 << 10

// storeContext returns a context that ends with m.ctx, or storeTimeout to a second more from now. The
// calls of one second share it: one for each message took 7 % of the processor time of a message.
func (m *MQTT) storeContext() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.storingSince) > deadlineStep {
		m.storing, m.storingEnd = context.WithTimeout(m.ctx, storeTimeout+deadlineStep)
		m.storingSince = now
	}
	return m.storing
}
