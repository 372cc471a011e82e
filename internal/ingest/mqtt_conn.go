package ingest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/mqtt"
	"example.org/carstate/internal/telemetry"
)

const (
	maxPacket      = 1 << 20          // bytes
	connectTimeout = 10 * time.Second // TLS included
	writeTimeout   = 10 * time.Second // for a write of a few KiB
	maxKeepAlive   = 600              // seconds; a client may be silent for 1.5 times as long
	receiveMaximum = 128              // unacknowledged messages

	waitBuffer     = 512
	readBuffer     = 2 << 10
	maxSmallPacket = 16 << 10 // bytes of a packet other than PUBLISH
	smallPublish   = 4 << 10  // a PUBLISH up to this size reserves memory only after its arrival
)

// conn has no buffer but small while it waits for a packet.
type conn struct {
	net.Conn
	m *MQTT

	// The fields from small to silence belong to the goroutine that reads.
	small    [waitBuffer]byte
	buffer   []byte // small, or of readBuffer bytes from the pool
	from, to int    // buffer[from:to] is not used yet
	paced    bool
	pace     pace
	deadline time.Time // for the first byte of a packet; zero if beginPace replaced it
	// Memory of the present packet.
	receiving, finishing, processing reservation
	silence                          time.Duration // that a client may keep
	id                               clientID

	version byte
	mqtt.Properties
	key   []byte
	grant *access.Grant // nil before the login
	slot  reservation   // in MQTT.slots, after the login
	queue queue         // messages not acknowledged yet

	writeUntil atomic.Int64    // deadline since MQTT.began, monotonic; 0 before the first write
	ctx        context.Context // ends when nothing more is to be read
	end        context.CancelCauseFunc
}

func (m *MQTT) newConn(nc net.Conn) *conn {
	c := &conn{Conn: nc, m: m}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	c.buffer = c.small[:]
	c.queue.changed.L = &c.queue.mu
	c.pace.of = nc
	c.receiving.of, c.finishing.of, c.processing.of = m.receiving, m.finishing, m.processing
	return c
}

type closing struct {
	code byte
	text string
}

func (e *closing) Error() string { return e.text }

func (c *conn) countClosing(why *telemetry.Refusal, code byte) *closing {
	c.m.in.countRefused(c.grant, why, 1)
	return &closing{code, why.Text}
}

var (
	errEnding    = errors.New("the connection is ending") // after stop or Close
	errMalformed = &closing{mqtt.MalformedPacket, "the packet is malformed"}
	errTakenOver = &closing{mqtt.SessionTakenOver, "another client has connected with the same client identifier"}
)

// stop fails all reads, so the connection ends once its messages are acknowledged.
func (c *conn) stop(why error) {
	c.end(why)
	// The reader may replace this deadline, so it checks ctx before each read.
	_ = c.SetReadDeadline(time.Unix(1, 0))
}

var buffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

func (c *conn) fill() error {
	switch {
	case c.from == c.to:
		if len(c.buffer) == readBuffer {
			buffers.Put((*[readBuffer]byte)(c.buffer))
		}
		c.buffer, c.from, c.to = c.small[:], 0, 0
	case c.to == len(c.buffer):
		rest := c.buffer[c.from:c.to]
		if len(c.buffer) < readBuffer {
			c.buffer = buffers.Get().(*[readBuffer]byte)[:]
		}
		c.from, c.to = 0, copy(c.buffer, rest)
	}
	n, err := c.Read(c.buffer[c.to:])
	if c.to += n; n > 0 {
		return nil // with TLS 1.2, an error may come with the last bytes; the next read repeats it
	}
	return err
}

// Read bypasses c.buffer.
func (c *conn) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, errEnding
	}
	n, err := c.Conn.Read(p)
	if c.paced {
		c.pace.add(n)
	}
	return n, err
}

func (c *conn) readByte() (byte, error) {
	for c.from == c.to {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	c.from++
	return c.buffer[c.from-1], nil
}

func (c *conn) readLength() (length int, err error) {
	for shift := 0; shift < 28; shift += 7 {
		b, err := c.readByte()
		if err != nil {
			return 0, err
		}
		if length |= int(b&0x7f) << shift; b < 0x80 {
			return length, nil
		}
	}
	return 0, errMalformed
}

func (c *conn) readConnect(timeout time.Duration) (p mqtt.Connect, code byte, err error) {
	_ = c.SetDeadline(time.Now().Add(timeout))
	first, err := c.readByte()
	if err != nil || first != mqtt.ConnectPacket {
		return p, 0, cmp.Or(err, errors.New("the first packet is no CONNECT"))
	}
	length, err := c.readLength()
	if err != nil || length > maxSmallPacket {
		return p, 0, cmp.Or[error](err, errPacketTooLarge)
	}
	body, err := c.readBody(first, length)
	if err != nil {
		return p, 0, err
	}
	p, code = mqtt.ParseConnect(body)
	return p, code, nil
}

// If readPacket has handled the packet, first is 0. body is valid until the next call.
func (c *conn) readPacket() (first byte, body []byte, err error) {
	c.awaitPacket()
	if first, err = c.readByte(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && c.ctx.Err() == nil {
			err = &closing{mqtt.KeepAliveTimeout, "the client was silent for too long"}
		}
		return 0, nil, err
	}
	if first>>4 == 0 {
		return 0, nil, errMalformed
	}
	if c.to-c.from < 4 { // the length may not have arrived yet
		c.beginPace()
	}
	length, err := c.readLength()
	isPublish := first&0xf0 == mqtt.PublishPacket
	switch {
	case err != nil:
	case isPublish && length >= maxPacket && c.version < 5:
		err = c.skipPublish(first, length)
		return 0, nil, c.orSlow(err)
	case length >= maxPacket || !isPublish && length > maxSmallPacket: // maxPacket includes first
		err = c.countClosing(errPacketTooLarge, mqtt.PacketTooLarge)
	default:
		body, err = c.readBody(first, length)
	}
	if err == nil && isPublish && !c.processing.reserveWait(messageBytes+length+telemetry.Growth*length, c.ctx.Done()) {
		err = errEnding
	}
	return first, body, c.orSlow(err)
}

func (c *conn) orSlow(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.ctx.Err() == nil {
		return c.countClosing(errSlowPacket, mqtt.PacketFailed)
	}
	return err
}

// Deadlines are up to deadlineStep late, because moving one for each packet would take about as
// long as decoding a sample.
const deadlineStep = time.Second

func (c *conn) awaitPacket() {
	c.paced = false
	if c.from < c.to {
		return
	}
	if silent := time.Now().Add(c.silence); silent.After(c.deadline) {
		c.deadline = silent.Add(deadlineStep)
		_ = c.SetReadDeadline(c.deadline)
	}
}

// beginPace replaces the deadline by the minimum rate of a packet.
func (c *conn) beginPace() {
	c.deadline, c.paced = time.Time{}, true
	c.pace.begin(time.Now(), c.m.in.grace)
}

func (c *conn) readBody(first byte, length int) ([]byte, error) {
	if c.to-c.from < length && !c.paced && c.grant != nil {
		c.beginPace()
	}
	if length <= readBuffer {
		for c.to-c.from < length {
			if err := c.fill(); err != nil {
				return nil, err
			}
		}
		c.from += length
		return c.buffer[c.from-length : c.from], nil
	}
	p := make([]byte, min(length, smallPublish))
	n := copy(p, c.buffer[c.from:c.to])
	c.from += n
	for {
		if _, err := io.ReadFull(c, p[n:]); err != nil {
			return nil, err
		}
		if len(p) == length {
			return p, nil
		}
		began := time.Now()
		size, ok := c.grow(first, len(p), length)
		if !ok {
			return nil, errEnding
		}
		larger := make([]byte, size)
		n = copy(larger, p)
		p = larger
		if c.paced {
			c.pace.began = c.pace.began.Add(time.Since(began)) // waiting for memory is not counted
			c.pace.set()
		}
	}
}

// skipPublish discards a PUBLISH that is too large. In MQTT 3.1.1, only a PUBACK keeps the client
// from sending it again.
func (c *conn) skipPublish(first byte, length int) error {
	if !c.paced {
		c.beginPace()
	}
	id, topic := 0, 0
	for n := 0; n < length; n++ {
		if n > topic+3 { // after the packet identifier
			skipped := min(length-n, c.to-c.from)
			if n, c.from = n+skipped, c.from+skipped; n == length {
				break
			}
		}
		b, err := c.readByte() // holds no buffer while it waits
		switch {
		case err != nil:
			return err
		case n < 2:
			topic = topic<<8 | int(b)
		case n == topic+2 || n == topic+3:
			id = id<<8 | int(b) // with QoS 0, part of the payload
		}
	}
	p := mqtt.Publish{QoS: first >> 1 & 3, ID: uint16(id)}
	if p.QoS == 3 || p.QoS > 0 && p.ID == 0 {
		return errMalformed
	}
	return c.m.receive(c, p, errPacketTooLarge)
}

// grow returns the next size of the buffer, or false if the connection ended while it waited for
// memory.
func (c *conn) grow(first byte, size, whole int) (int, bool) {
	larger := min(2*size, whole)
	switch {
	case first&0xf0 != mqtt.PublishPacket:
		return larger, true
	case c.receiving.bytes == 0: // c may wait, since it holds no memory
		return larger, c.receiving.reserveWait(larger, c.ctx.Done())
	case c.receiving.reserve(larger):
		return larger, true
	}
	return whole, c.finishing.reserveWait(whole-c.receiving.bytes, c.ctx.Done())
}

func (c *conn) releaseMemory() {
	c.receiving.release()
	c.finishing.release()
	c.processing.release()
}

// Write has a time limit: a client that does not read would block the goroutine that
// acknowledges. A part of a packet cannot be completed later, so an error ends the connection.
func (c *conn) Write(p []byte) (int, error) {
	if due := time.Since(c.m.began) + writeTimeout; due > time.Duration(c.writeUntil.Load()) {
		due += deadlineStep
		_ = c.SetWriteDeadline(c.m.began.Add(due))
		c.writeUntil.Store(int64(due))
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// part sends a DISCONNECT to an MQTT 5 client, and closes the connection, so no second one follows.
func (c *conn) part(why *closing) {
	if c.version == 5 {
		_, _ = c.Write(mqtt.AppendReason(nil, c.version, mqtt.DisconnectPacket, nil, why.code, c.fitting(why.text)))
	}
	_ = c.Close()
}

// reasonBytes are those of a PUBACK or DISCONNECT besides the text: two lengths, type, packet
// identifier, code, and head of the property.
const reasonBytes = 4 + 4 + 1 + 2 + 1 + 3

// fitting returns "" if text would exceed the client's maximum packet size.
func (c *conn) fitting(text string) string {
	if c.MaxPacket > 0 && int64(reasonBytes+len(text)) > int64(c.MaxPacket) {
		return ""
	}
	return text
}

func (c *conn) Close() error {
	c.end(nil)
	return c.Conn.Close()
}
