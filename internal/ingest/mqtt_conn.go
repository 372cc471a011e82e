package ingest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/access"
)

// Limits of an MQTT connection.
const (
	maxPacket      = 1 << 20          // bytes of a packet
	connectTimeout = 10 * time.Second // from accepting a connection to its CONNECT, TLS included
	writeTimeout   = 10 * time.Second // for one write to a client, of at most a few KiB
	maxKeepAlive   = 600              // seconds; a connection may be silent for 1.5 times as long
	receiveMaximum = 128              // unacknowledged messages of a client
	maxAliases     = 64               // topic aliases of a connection, up to 300 bytes each
)

// conn is the connection of a client. It tracks where packets begin and end, because the MQTT
// library allocates the length that a packet announces at once, and several times that length to
// decode it. So conn reads a PUBLISH itself, as far as the quotas have memory for it (see
// [packetQuotas]), and passes it to the function publish. Through Read, the library gets only other
// packets, which are small.
type conn struct {
	net.Conn
	quotas *packetQuotas

	// The fields from in to processing are used only by the goroutine that reads from the client.
	in       *bufio.Reader // of Conn
	header   [5]byte       // the fixed header of the packet
	head     bytes.Reader  // the part of header that Read returns next
	left     int           // bytes of the packet that are still to be read from in
	pace     pace          // the minimum rate of the packet
	deadline time.Time     // for the first byte of the next packet; zero if another deadline was set after it
	// The memory that the present packet holds of each of the three quotas in packetQuotas.
	receiving, finishing, processing reservation

	source string        // the name of the source; set by logIn
	key    []byte        // the source's key, checked again at each message
	grant  *access.Grant // the source as of the last message
	slot   reservation   // of the quota of connections that have logged in
	failed func(error)   // handles the error of reading a packet; nil before logIn
	queue  queue         // messages that are not acknowledged yet
	// publish processes a PUBLISH: the first byte of its header, and all bytes after its header.
	// It is nil before the login.
	publish func(first byte, body []byte) error
	silence time.Duration // how long the client may send nothing; set at the login

	writeUntil atomic.Pointer[time.Time] // the deadline for writing; nil before the first write
	greeted    atomic.Bool               // something was sent to the client
	open       context.Context           // ends with the connection or with reading (see newConn); wakes goroutines
	end        context.CancelFunc
}

// newConn returns the connection of a client. When reading ends, Read fails, so that the connection
// ends after its messages are acknowledged.
func newConn(reading context.Context, nc net.Conn, r *packetQuotas) *conn {
	c := &conn{Conn: nc, quotas: r, in: bufio.NewReaderSize(nc, readBuffer)}
	c.open, c.end = context.WithCancel(reading)
	// The goroutine that reads may replace this deadline before its next read, so it also checks
	// whether open has ended.
	context.AfterFunc(c.open, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })
	c.queue.changed = sync.NewCond(&c.queue.mu)
	c.pace.of = nc
	c.receiving.of, c.finishing.of, c.processing.of = r.receiving, r.finishing, r.processing
	return c
}

var (
	errNoConnect = errors.New("the first packet is not an MQTT CONNECT, or is too large")
	errEnding    = errors.New("the service is shutting down")
)

// The first bytes of packets, with the packet type in the upper four bits. The lower four bits,
// which hold flags, are zero here.
const (
	connectPacket    = 1 << 4
	publishPacket    = 3 << 4
	disconnectPacket = 14 << 4
)

// begin reads the header of the first packet. It returns an error unless the packet is a CONNECT of
// at most maxSmallPacket bytes. The whole CONNECT must arrive within timeout; without this limit,
// the library would wait for ever.
func (c *conn) begin(timeout time.Duration) error {
	if err := c.Conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if c.open.Err() != nil {
		return errEnding
	}
	first, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	if first != connectPacket {
		return errNoConnect
	}
	return c.readLength(first, maxSmallPacket)
}

// readLength reads the number of bytes after a packet's fixed header, whose first byte was already
// read, with 7 bits in each byte. It stores the number in c.left, and the whole header in c.head.
// If the number exceeds limit, it returns errPacketTooLarge and stores nothing.
func (c *conn) readLength(first byte, limit int) error {
	head := &c.header
	head[0] = first
	length := 0
	for i := 1; i < len(head); i++ {
		b, err := c.in.ReadByte()
		if err != nil {
			return err
		}
		head[i] = b
		length |= int(b&0x7f) << (7 * (i - 1))
		if b < 0x80 {
			if length > limit {
				return errPacketTooLarge
			}
			c.left = length
			c.head.Reset(head[:i+1])
			return nil
		}
	}
	return errPacketTooLarge
}

// Read reads bytes of packets other than PUBLISH from the client, at most up to the end of a
// packet. It processes each PUBLISH that arrives before them. Before it returns an error, it waits
// until all messages are acknowledged, because the library closes the connection at once after an
// error.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil {
		c.queue.wait()
		if c.failed != nil {
			c.failed(err)
		}
	}
	return n, err
}

func (c *conn) read(p []byte) (n int, err error) {
	for c.head.Len() == 0 && c.left == 0 {
		if err := c.nextPacket(); err != nil {
			return 0, err
		}
	}
	if c.head.Len() > 0 {
		return c.head.Read(p)
	}
	return c.readMore(p[:min(len(p), c.left)])
}

func (c *conn) readMore(p []byte) (int, error) {
	if c.open.Err() != nil {
		return 0, errEnding
	}
	n, err := c.in.Read(p)
	c.left -= n
	// The CONNECT packet has a deadline of its own, so the minimum rate (pace) applies only after
	// the login.
	if err == nil && c.left > 0 && c.source != "" {
		err = c.pace.add(n)
	}
	return n, c.asSlow(err)
}

// asSlow returns errSlowPacket if the deadline for the rest of a packet has passed, and otherwise
// err.
func (c *conn) asSlow(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.open.Err() == nil {
		return errSlowPacket
	}
	return err
}

// nextPacket reads the fixed header of the next packet. It reads and processes a whole PUBLISH.
func (c *conn) nextPacket() error {
	if err := c.awaitPacket(); err != nil {
		return err
	}
	first, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	late := c.in.Buffered() < 4 // the length may not have arrived yet
	if late {
		if err := c.beginPace(); err != nil {
			return err
		}
	}
	limit := maxSmallPacket
	if first&0xf0 == publishPacket {
		limit = maxPacket - 1 // the limit includes first
	}
	err = c.readLength(first, limit)
	if err == nil && !late && c.in.Buffered() < c.left {
		err = c.beginPace()
	}
	if err == nil && first&0xf0 == publishPacket {
		c.head.Reset(nil)
		err = c.readPublish(first)
		c.releaseMemory()
	}
	return c.asSlow(err)
}

// deadlineStep is how far a deadline is set beyond its limit. In return, the deadline is moved at
// most once in that time, because moving a deadline takes about as long as decoding a sample.
const deadlineStep = time.Second

// awaitPacket sets the read deadline for the first byte of a packet, unless it has arrived already.
func (c *conn) awaitPacket() error {
	if c.in.Buffered() == 0 {
		if silent := time.Now().Add(c.silence); silent.After(c.deadline) {
			c.deadline = silent.Add(deadlineStep)
			if err := c.SetReadDeadline(c.deadline); err != nil {
				return err
			}
		}
	}
	if c.open.Err() != nil { // the new deadline may have replaced the one that was set when open ended
		return errEnding
	}
	return nil
}

// beginPace begins to enforce the minimum rate of arrival (see pace) on a packet that has not all
// arrived. Its read deadline replaces the one for the time between packets.
func (c *conn) beginPace() error {
	c.deadline = time.Time{}
	if err := c.pace.begin(time.Now(), c.quotas.grace); err != nil {
		return err
	}
	if c.open.Err() != nil { // the new deadline may have replaced the one that was set when open ended
		return errEnding
	}
	return nil
}

// readPublish reads a PUBLISH whose header was read, and processes it. The buffer grows while the
// bytes of a large packet arrive. Before each growth, readPublish takes the memory from the quotas,
// and waits for it if necessary. If the connection ends during the wait, the error is errEnding.
func (c *conn) readPublish(first byte) error {
	whole := c.left
	p := make([]byte, min(whole, smallPublish))
	for n := 0; n < whole; {
		if n == len(p) {
			began := time.Now()
			size, ok := c.grow(len(p), whole)
			if !ok {
				return errEnding
			}
			larger := make([]byte, size)
			copy(larger, p)
			p = larger
			c.pace.began = c.pace.began.Add(time.Since(began)) // the time of waiting for memory is not counted
			if err := c.pace.set(); err != nil {
				return err
			}
		}
		more, err := c.readMore(p[n:])
		if n += more; err != nil {
			return err
		}
	}
	if !c.processing.reserveWait(processingBytes(whole), c.open.Done()) {
		return errEnding
	}
	return c.publish(first, p)
}

// grow takes memory from the quotas for a larger buffer, when that of a packet is full. size is the
// present size of the buffer, and whole is the size of the packet, both in bytes. The first result
// is the next size: twice size, but at most whole; or whole, if receiving has too little memory and
// grow uses finishing (see packetQuotas). The second result is false if the connection ended before
// the memory was free.
func (c *conn) grow(size, whole int) (int, bool) {
	larger := min(2*size, whole)
	switch {
	case c.receiving.bytes == 0: // it may wait, since it holds no memory
		return larger, c.receiving.reserveWait(larger, c.open.Done())
	case c.receiving.reserve(larger):
		return larger, true
	}
	return whole, c.finishing.reserveWait(whole-c.receiving.bytes, c.open.Done())
}

func (c *conn) releaseMemory() {
	c.receiving.release()
	c.finishing.release()
	c.processing.release()
}

// logIn records the source that has logged in on the connection, and its key. From then on, the
// memory of the connection's packets is taken from the source's share of the quotas.
func (c *conn) logIn(source *access.Grant, key []byte) {
	c.source, c.key, c.grant = source.Name, key, source
	c.receiving.source, c.finishing.source, c.processing.source = c.source, c.source, c.source
}

// pause waits for d. It returns false if the connection ended first.
func (c *conn) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.open.Done():
		return false
	}
}

// Write sends p to the client within writeTimeout, or up to deadlineStep more, so that a client
// that does not read cannot block the goroutine that acknowledges. A later write by another
// goroutine extends the limit of a write in progress. An error ends the connection, because a packet
// that was sent only in part cannot be completed later.
func (c *conn) Write(p []byte) (int, error) {
	// If another client takes over the session of this client before this client got a CONNACK, the
	// library would send a DISCONNECT as the first packet, which MQTT forbids (MQTT-3.14.0-1).
	if !c.greeted.Swap(true) && len(p) > 0 && p[0]&0xf0 == disconnectPacket {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	// The times are compared by the monotonic clock, by which the deadline expires, too.
	if due, until := time.Now().Add(writeTimeout), c.writeUntil.Load(); until == nil || due.After(*until) {
		due = due.Add(deadlineStep)
		if err := c.SetWriteDeadline(due); err != nil {
			return 0, err
		}
		c.writeUntil.Store(&due)
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// SetDeadline does nothing when the library calls it: awaitPacket and Write set the deadlines.
func (c *conn) SetDeadline(time.Time) error { return nil }

// NetConn returns the underlying connection.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close closes the connection at once.
func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}
