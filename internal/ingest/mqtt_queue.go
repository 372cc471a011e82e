package ingest

import (
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// pending is a message that waits for its answer.
type pending struct {
	batch   *batch       // to be stored; nil if the message was refused
	refusal packets.Code // why, if it was refused; otherwise its text has what was ignored
	outcome outcome
	qos     byte
	id      uint16
	since   time.Time // its arrival
	room    hold      // of processing
}

// pubackBytes is what a PUBACK has besides the text of its reason, at most: two lengths of up to
// four bytes, the type, the message, the code, and the property with its length.
const pubackBytes = 4 + 4 + 1 + 2 + 1 + 3

// queue holds one connection's messages from their arrival to their answer.
// While some are being stored, those that arrive wait, and are then stored
// together: a gateway that pipelines is not slowed down to one message a commit.
// One goroutine answers, and only while there is something to answer, so the
// PUBACKs leave in the order of the messages and an idle connection costs
// nothing.
type queue struct {
	mu      sync.Mutex // guards all of it
	changed *sync.Cond // with mu: told when waiting, bytes or working change
	waiting []pending
	bytes   int  // of memory, of the messages waiting and being stored
	working bool // a goroutine answers
	broken  bool // a message could not be stored; nothing after it may be
}

// wait returns when every message is answered. Nobody may enqueue meanwhile.
func (q *queue) wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.working {
		q.changed.Wait()
	}
}

// enqueue hands a message over to be stored and answered. It waits while too
// much is under way, and so makes the client wait.
func (m *MQTT) enqueue(cl *mqtt.Client, c *conn, p pending) {
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
	p.room = c.processing.part(bytes)
	q.waiting = append(q.waiting, p)
	q.bytes += p.room.bytes
	if !q.working {
		q.working = true
		go m.answerAll(cl, q)
	}
}

// answerAll answers until nothing waits.
func (m *MQTT) answerAll(cl *mqtt.Client, q *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		messages, broken := q.waiting, q.broken
		q.waiting = nil
		q.changed.Broadcast()
		q.mu.Unlock()

		if !broken {
			broken = !m.answer(cl, messages)
		}

		q.mu.Lock()
		q.broken = broken
		for _, p := range messages {
			q.bytes -= p.room.bytes
			p.room.end()
		}
	}
	q.working = false
	q.changed.Broadcast()
}

// answer stores the messages together and acknowledges each. If they are not
// stored it acknowledges none, ends the connection and returns false: a later
// message must not be stored before the client has sent these again, because
// whoever folds samples ignores what is older than what it knows.
func (m *MQTT) answer(cl *mqtt.Client, messages []pending) bool {
	all := new(batch)
	for _, p := range messages {
		if p.batch != nil {
			all.join(p.batch)
		}
	}
	all.sort()
	ctx, span := m.in.span(m.ctx, "MQTT PUBLISH", messages[0].since)
	if err := m.in.store(ctx, all); err != nil {
		endSpan(span, unavailable)
		for _, p := range messages {
			m.in.observe(p.since, unavailable)
		}
		m.hangUp(cl, packets.ErrServerBusy)
		return false
	}
	endSpan(span, stored)
	for _, p := range messages {
		m.in.observe(p.since, p.outcome)
		if p.qos == 0 {
			continue
		}
		reason := p.refusal.Reason
		// The library sends nothing in place of a packet that is too large for the client.
		if most := cl.Properties.Props.MaximumPacketSize; most > 0 && int64(pubackBytes+len(reason)) > int64(most) {
			reason = ""
		}
		// If the client is gone it will send again.
		_ = cl.WritePacket(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Puback},
			PacketID:    p.id,
			ReasonCode:  p.refusal.Code,
			Properties:  packets.Properties{ReasonString: reason},
		})
	}
	return true
}
