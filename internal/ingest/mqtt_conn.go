package ingest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/vehicle"
)

// Limits of an MQTT connection.
const (
	maxPacket      = 1 << 20          // bytes of a packet
	connectTimeout = 10 * time.Second // from accepting a connection to its CONNECT, TLS included
	writeTimeout   = 10 * time.Second // for one write to a client, of at most a few KiB
	maxKeepAlive   = 600              // seconds; a connection may be silent for 1.5 times as long
	receiveMaximum = 128              // unacknowledged messages of a client
)

// conn is the connection of a client. It reads a packet as far as the quotas have memory for it
// (see [packetQuotas]). A connection that waits for a packet holds no buffer, unless it uses TLS.
type conn struct {
	net.Conn
	m *MQTT

	// The fields from raw to vehicle are used only by the goroutine that reads from the client.
	raw      syscall.RawConn    // of a connection without TLS; otherwise nil
	readRaw  func(uintptr) bool // the method tryRead, made once
	readErr  error              // of the last call of tryRead
	buffer   *[readBuffer]byte  // from buffers; nil if there is nothing in it
	from, to int                // the part of buffer that was received and not used yet
	paced    bool               // the minimum rate of arrival applies
	pace     pace               // the minimum rate of the packet
	deadline time.Time          // for the first byte of the next packet; zero if another deadline was set after it
	// The memory that the present packet holds of each of the three quotas in packetQuotas.
	receiving, finishing, processing reservation
	silence                          time.Duration // how long the client may send nothing
	topic                            string        // of the last message, if it names a vehicle
	vehicle                          vehicle.ID    // that topic names
	id                               clientID      // set by enter

	version   byte
	terse     bool          // PUBACKs must have no reasons
	maxPacket uint32        // maximum size of a packet that the client accepts; 0: any
	key       []byte        // the source's key, checked again at each message
	grant     *access.Grant // the source as of the last message; nil before the login
	slot      reservation   // of the quota of connections that have logged in
	queue     queue         // messages that are not acknowledged yet
	acks      [8]byte       // of the goroutine that acknowledges; has room for the usual PUBACK

	writeUntil atomic.Int64  // the deadline for writing, as time since MQTT.began; 0 before the first write
	parted     atomic.Bool   // a DISCONNECT was sent
	takenOver  atomic.Bool   // another client has the same client identifier
	stopping   sync.Once     // closes stopped
	stopped    chan struct{} // closed when nothing more is to be read
}

func (m *MQTT) newConn(nc net.Conn) *conn {
	c := &conn{Conn: nc, m: m, stopped: make(chan struct{})}
	if g, ok := nc.(*listen.Conn); ok {
		if s, ok := g.Conn.(syscall.Conn); ok {
			c.raw, _ = s.SyscallConn() // without it, the connection is read as one with TLS
			c.readRaw = c.tryRead
		}
	}
	c.queue.changed.L = &c.queue.mu
	c.pace.of = nc
	c.receiving.of, c.finishing.of, c.processing.of = m.quotas.receiving, m.quotas.finishing, m.quotas.processing
	return c
}

// closing is an error that ends a connection, with the reason for an MQTT 5 client.
type closing struct {
	code byte
	text string
}

func (e *closing) Error() string { return e.text }

var (
	errEnding    = errors.New("the connection is ending") // of reading after stop
	errMalformed = &closing{malformedPacket, "the packet is malformed"}
)

// stop makes all reads fail, so that the connection ends after its messages are acknowledged.
func (c *conn) stop() {
	c.stopping.Do(func() { close(c.stopped) })
	// The goroutine that reads may replace this deadline, so it checks hasStopped before each read.
	_ = c.SetReadDeadline(time.Unix(1, 0))
}

func (c *conn) hasStopped() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return false
	}
}

// buffers pools the buffers of all connections.
var buffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// fill reads more bytes into the buffer, behind those that are not used yet.
func (c *conn) fill() error {
	switch {
	case c.hasStopped():
		return errEnding
	case c.from == c.to:
		c.from, c.to = 0, 0
	case c.to == readBuffer:
		c.to = copy(c.buffer[:], c.buffer[c.from:c.to])
		c.from = 0
	}
	before, err := c.to, error(nil)
	if c.raw != nil {
		if err = c.raw.Read(c.readRaw); err == nil {
			err = c.readErr
		}
	} else {
		if c.buffer == nil {
			c.buffer = buffers.Get().(*[readBuffer]byte)
		}
		var n int
		n, err = c.Conn.Read(c.buffer[c.to:])
		c.to += n
	}
	if err == nil && c.paced {
		err = c.pace.add(c.to - before)
	}
	return err
}

// tryRead reads what has arrived at the file descriptor, and returns false if that is nothing.
// While the connection then waits, it needs no buffer.
func (c *conn) tryRead(fd uintptr) bool {
	if c.buffer == nil {
		c.buffer = buffers.Get().(*[readBuffer]byte)
	}
	n, err := syscall.Read(int(fd), c.buffer[c.to:])
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), c.buffer[c.to:])
	}
	if c.readErr = err; n > 0 {
		c.to += n
		return true
	}
	if c.to == 0 {
		buffers.Put(c.buffer)
		c.buffer = nil
	}
	if err == nil {
		c.readErr = io.EOF
	}
	return err != syscall.EAGAIN
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

// readLength reads the number of bytes after a packet's fixed header. The first byte of the header
// was already read. The number has 7 bits in each byte, at most four.
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

// readConnect reads and parses the first packet, which must be a CONNECT of at most maxSmallPacket
// bytes and must arrive within timeout. For the other results see parseConnect.
func (c *conn) readConnect(timeout time.Duration) (p connect, code byte, err error) {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return p, 0, err
	}
	first, err := c.readByte()
	if err == nil && first != connectPacket {
		err = errors.New("the first packet is no CONNECT")
	}
	if err != nil {
		return p, 0, err
	}
	length, err := c.readLength()
	if err == nil && length > maxSmallPacket {
		err = errPacketTooLarge
	}
	if err != nil {
		return p, 0, err
	}
	body, err := c.readBody(first, length)
	if err != nil {
		return p, 0, err
	}
	p, code = parseConnect(body)
	return p, code, nil
}

// readPacket reads the next packet: the first byte of its header, and all bytes after its header.
// If first is 0, the packet was handled already. The slice is valid until the next call. If the
// packet is a PUBLISH, c.processing has the memory to decode it.
func (c *conn) readPacket() (first byte, body []byte, err error) {
	if err := c.awaitPacket(); err != nil {
		return 0, nil, err
	}
	if first, err = c.readByte(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && !c.hasStopped() {
			err = &closing{keepAliveTimeout, "the client was silent for too long"}
		}
		return 0, nil, err
	}
	if first>>4 == 0 { // no packet has this type
		return 0, nil, errMalformed
	}
	if c.to-c.from < 4 { // the length may not have arrived yet
		err = c.beginPace()
	}
	length := 0
	if err == nil {
		length, err = c.readLength()
	}
	isPublish := first&0xf0 == publishPacket
	switch {
	case err != nil:
	case isPublish && length >= maxPacket && c.version < 5:
		err = c.skipPublish(first, length)
		return 0, nil, c.orSlow(err)
	case length >= maxPacket || !isPublish && length > maxSmallPacket: // the limit includes first
		err = c.m.refuse(c.grant, errPacketTooLarge, packetTooLarge)
	default:
		body, err = c.readBody(first, length)
	}
	if err == nil && isPublish && !c.processing.reserveWait(processingBytes(length), c.stopped) {
		err = errEnding
	}
	return first, body, c.orSlow(err)
}

// orSlow returns the refusal of a slow packet if the deadline for the rest of it has passed, and
// otherwise err.
func (c *conn) orSlow(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.hasStopped() {
		return c.m.refuse(c.grant, errSlowPacket, packetFailed)
	}
	return err
}

// deadlineStep is how far a deadline is set beyond its limit. In return, the deadline is moved at
// most once in that time, because moving a deadline takes about as long as decoding a sample.
const deadlineStep = time.Second

// awaitPacket sets the read deadline for the first byte of a packet, unless it has arrived already.
func (c *conn) awaitPacket() error {
	c.paced = false
	if c.from < c.to {
		return nil
	}
	if silent := time.Now().Add(c.silence); silent.After(c.deadline) {
		c.deadline = silent.Add(deadlineStep)
		return c.SetReadDeadline(c.deadline)
	}
	return nil
}

// beginPace begins to enforce the minimum rate of arrival (see pace) on a packet that has not all
// arrived. Its read deadline replaces the one for the time between packets.
func (c *conn) beginPace() error {
	c.deadline, c.paced = time.Time{}, true
	return c.pace.begin(time.Now(), c.m.quotas.grace)
}

// readBody reads the bytes after a packet's header. A packet that fits stays in the buffer of the
// connection. For a larger one, readBody makes a slice, which grows as grow permits.
func (c *conn) readBody(first byte, length int) ([]byte, error) {
	if c.to-c.from < length && !c.paced && c.grant != nil {
		if err := c.beginPace(); err != nil {
			return nil, err
		}
	}
	if length <= readBuffer {
		for c.to-c.from < length {
			if err := c.fill(); err != nil {
				return nil, err
			}
		}
		if length == 0 {
			return nil, nil
		}
		c.from += length
		return c.buffer[c.from-length : c.from], nil
	}
	p := make([]byte, min(length, smallPublish))
	for n := 0; n < length; {
		if n == len(p) {
			began := time.Now()
			size, ok := min(2*n, length), true
			if first&0xf0 == publishPacket {
				size, ok = c.grow(n, length)
			}
			if !ok {
				return nil, errEnding
			}
			larger := make([]byte, size)
			copy(larger, p)
			p = larger
			if c.paced {
				c.pace.began = c.pace.began.Add(time.Since(began)) // the time of waiting for memory is not counted
				if err := c.pace.set(); err != nil {
					return nil, err
				}
			}
		}
		more, err := c.readMore(p[n:])
		if n += more; err != nil {
			return nil, err
		}
	}
	return p, nil
}

// readMore reads bytes of a packet, first those in the buffer.
func (c *conn) readMore(p []byte) (n int, err error) {
	if c.from < c.to {
		n = copy(p, c.buffer[c.from:c.to])
		c.from += n
		return n, nil
	}
	if c.hasStopped() {
		return 0, errEnding
	}
	if n, err = c.Conn.Read(p); err == nil && c.paced {
		err = c.pace.add(n)
	}
	return n, err
}

// skipPublish reads past a PUBLISH that is too large, and refuses it. With MQTT 3.1.1 this is the
// only way to make the client stop sending it; an MQTT 5 client knows the limit.
func (c *conn) skipPublish(first byte, length int) error {
	if !c.paced {
		if err := c.beginPace(); err != nil {
			return err
		}
	}
	id, topic := 0, 0
	for n := 0; n < length; n++ {
		if n > topic+3 { // after the packet identifier
			skipped := min(length-n, c.to-c.from)
			n, c.from = n+skipped, c.from+skipped
			if n == length {
				break
			}
		}
		b, err := c.readByte()
		switch {
		case err != nil:
			return err
		case n < 2:
			topic = topic<<8 | int(b)
		case n == topic+2 || n == topic+3:
			id = id<<8 | int(b)
		}
	}
	p := publish{qos: first >> 1 & 3, id: uint16(id)}
	if p.qos == 3 || p.qos > 0 && id == 0 {
		return errMalformed
	}
	return c.m.receive(c, &p, errPacketTooLarge)
}

// grow takes memory from the quotas for a larger buffer, when that of a packet is full, and returns the
// next size: twice size, at most that of the packet, or whole if it uses finishing (see packetQuotas). It
// returns false if the connection ended before the memory was free.
func (c *conn) grow(size, whole int) (int, bool) {
	larger := min(2*size, whole)
	switch {
	case c.receiving.bytes == 0: // it may wait, since it holds no memory
		return larger, c.receiving.reserveWait(larger, c.stopped)
	case c.receiving.reserve(larger):
		return larger, true
	}
	return whole, c.finishing.reserveWait(whole-c.receiving.bytes, c.stopped)
}

func (c *conn) releaseMemory() {
	c.receiving.release()
	c.finishing.release()
	c.processing.release()
}

// pause waits for d. It returns false if the connection ended first.
func (c *conn) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.stopped:
		return false
	}
}

// Write sends p, one or more whole packets, to the client within writeTimeout, or up to
// deadlineStep more, so that a client that does not read cannot block the goroutine that
// acknowledges. A later write by another goroutine extends the limit of a write in progress. An
// error ends the connection, because a packet that was sent only in part cannot be completed later.
func (c *conn) Write(p []byte) (int, error) {
	// The times are compared by the monotonic clock, by which the deadline expires, too.
	if due := time.Since(c.m.began) + writeTimeout; due > time.Duration(c.writeUntil.Load()) {
		due += deadlineStep
		if err := c.SetWriteDeadline(c.m.began.Add(due)); err != nil {
			return 0, err
		}
		c.writeUntil.Store(int64(due))
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// part sends a DISCONNECT with the reason to an MQTT 5 client, unless one was sent before, and
// closes the connection.
func (c *conn) part(why *closing) {
	if !c.parted.Swap(true) && c.version == 5 {
		_, _ = c.Write(appendReason(nil, disconnectPacket, nil, why.code, c.fitting(why.text)))
	}
	_ = c.Close()
}

// reasonBytes is the maximum size of a PUBACK or DISCONNECT without the text of its reason: two
// lengths of up to four bytes, the type, the packet identifier, the code, and the property with its
// length.
const reasonBytes = 4 + 4 + 1 + 2 + 1 + 3

// fitting returns text, or "" if the client accepts no packet that is so large.
func (c *conn) fitting(text string) string {
	if c.maxPacket > 0 && int64(reasonBytes+len(text)) > int64(c.maxPacket) {
		return ""
	}
	return text
}

// Close closes the connection at once.
func (c *conn) Close() error {
	c.stopping.Do(func() { close(c.stopped) })
	return c.Conn.Close()
}
