package ingest

import (
	"context"
	"sync"
	"time"

	"example.org/carstate/internal/mqtt"
	"example.org/carstate/internal/telemetry"
)

const (
	messageBytes = 512     // memory of a message without its samples, estimated
	maxQueued    = 4 << 20 // of a connection's unacknowledged messages; a single one may be larger
)

type pending struct {
	batch   *telemetry.Batch // nil if the message was refused
	code    byte             // of a refusal
	text    string           // of the PUBACK
	outcome outcome
	qos     byte
	id      uint16
	since   time.Time
	memory  reservation // in MQTT.processing
	source  uint32
	samples int // reserved in Unfolded
}

// queue holds a connection's unacknowledged messages. One goroutine, which ends when nothing is left,
// stores together those that arrived during the last append.
type queue struct {
	mu      sync.Mutex // guards all other fields
	changed sync.Cond  // waiting, bytes or working
	waiting []pending
	bytes   int  // of messages that wait or are being stored
	working bool // drainQueue runs
	broken  bool // a message was not stored, so no later one may be (DESIGN.md)
}

// wait waits for drainQueue. enqueue must not be called meanwhile.
func (q *queue) wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.working {
		q.changed.Wait()
	}
}

// While the queue is full, enqueue blocks, and the client is not read.
func (m *MQTT) enqueue(c *conn, p pending) {
	q := &c.queue
	bytes := messageBytes
	if p.batch != nil {
		bytes += p.batch.Bytes
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
	}
	q.working = false
	q.changed.Broadcast()
}

func (m *MQTT) storeAndAcknowledge(c *conn, messages []pending) bool {
	if err := m.store(messages); err != nil {
		for _, p := range messages {
			m.in.observe(p.since, unavailable)
		}
		c.part(&closing{mqtt.ServerBusy, errNotStored.Text})
		return false
	}
	// Errors of Write are ignored: a client that has gone sends its messages again.
	var acks []byte
	for _, p := range messages {
		m.in.observe(p.since, p.outcome)
		if p.qos == 0 {
			continue
		}
		first := byte(mqtt.PubackPacket)
		if p.qos == 2 {
			first = mqtt.PubrecPacket
		}
		if p.text = c.fitting(p.text); c.Terse {
			p.text = ""
		}
		acks = mqtt.AppendReason(acks, c.version, first, []byte{byte(p.id >> 8), byte(p.id)}, p.code, p.text)
		if len(acks) >= 4<<10 {
			_, _ = c.Write(acks)
			acks = acks[:0]
		}
	}
	if len(acks) > 0 {
		_, _ = c.Write(acks)
	}
	return true
}

func (m *MQTT) store(messages []pending) error {
	var all *telemetry.Batch
	for _, p := range messages {
		switch {
		case all == nil:
			all = p.batch
		case p.batch != nil:
			all.Join(p.batch)
		}
	}
	if all == nil {
		return nil
	}
	defer all.Free()
	if len(messages) > 1 {
		all.Sort()
	}
	return m.in.store(m.storeContext(), all)
}

// Calls of one second share a context: one per message took 7 % of a message's processor time.
func (m *MQTT) storeContext() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if end, _ := m.storing.Deadline(); time.Until(end) < storeTimeout {
		next, end := context.WithTimeout(m.ctx, storeTimeout+deadlineStep)
		context.AfterFunc(next, end) // vet wants it called
		m.storing = next
	}
	return m.storing
}
