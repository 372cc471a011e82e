package ingest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
)

// conn is a client's connection. It follows where packets begin and end, so that
// it can guard what the MQTT library does not: the library allocates whatever
// length a packet claims, at once, and several times that while it reads it. So
// a large packet gets to the library only when all of it has come and there is room for
// it (see [rooms]).
type conn struct {
	net.Conn
	rooms *rooms

	// Used by the goroutine that reads.
	in     *bufio.Reader // of Conn
	head   bytes.Reader  // bytes that Read gives out next: a header, or a large packet
	left   int           // bytes of the packet that are neither in head nor given out
	packet int           // bytes of the packet after its header, if it is a PUBLISH
	pace   pace          // of the packet
	// What the packet being read has taken of the rooms.
	receiving, finishing, processing hold

	source string        // the name of the source that logged in; set before its first message
	key    []byte        // and its key, to ask again at each message
	grant  *access.Grant // and what counted at the last message
	place  hold          // among the connections that have logged in
	slow   func()        // ends the connection of a logged-in client whose packet comes too slowly
	queue  queue         // its messages that are not answered yet

	greeted atomic.Bool // something was sent
	ending  atomic.Bool
	endOnce sync.Once
	ended   chan struct{} // closed when ending, for who waits for room
}

func newConn(nc net.Conn, r *rooms) *conn {
	c := &conn{Conn: nc, rooms: r, in: bufio.NewReaderSize(nc, readBuffer), ended: make(chan struct{})}
	c.queue.changed = sync.NewCond(&c.queue.mu)
	c.pace.of = nc
	c.receiving.of, c.finishing.of, c.processing.of = r.receiving, r.finishing, r.processing
	return c
}

var (
	errNoConnect = errors.New("the first packet is no MQTT CONNECT of reasonable size")
	errTooLarge  = errors.New("the packet is larger than its type may be")
	errEnding    = errors.New("the service is shutting down")
	errSlow      = errors.New("the packet came too slowly")
)

// First bytes of a packet: the type; flags follow in the low half.
const (
	connectPacket    = 1 << 4
	publishPacket    = 3 << 4
	disconnectPacket = 14 << 4
)

// begin sees that what arrives is an MQTT CONNECT of reasonable size, and that
// all of it arrives before the timeout. The library would wait for ever.
func (c *conn) begin(timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if c.ending.Load() {
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

// readLength reads the rest of a fixed header whose first byte was read: the
// length of what follows, 7 bits a byte.
func (c *conn) readLength(first byte, limit int) error {
	head := [5]byte{first}
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
				return errTooLarge
			}
			c.left = length
			c.head.Reset(bytes.Clone(head[:i+1]))
			return nil
		}
	}
	return errTooLarge
}

// Read reads what the client sends, at most up to the end of a packet. At the
// end it first waits until all messages are answered, because the library closes
// the connection at once.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil {
		c.queue.wait()
		if c.slow != nil && errors.Is(err, errSlow) {
			c.slow()
		}
	}
	return n, err
}

func (c *conn) read(p []byte) (n int, err error) {
	if c.head.Len() == 0 && c.left == 0 {
		if err := c.nextPacket(); err != nil {
			return 0, err
		}
	}
	if c.head.Len() > 0 {
		return c.head.Read(p)
	}
	n, err = c.more(p[:min(len(p), c.left)])
	if err == nil && c.left == 0 && c.packet > 0 {
		// With the last byte the library begins to work on the packet.
		err = c.arrived()
	}
	return n, err
}

// more reads more of a packet.
func (c *conn) more(p []byte) (int, error) {
	if c.ending.Load() {
		return 0, errEnding
	}
	n, err := c.in.Read(p)
	c.left -= n
	if err == nil && c.left > 0 && c.source != "" { // a CONNECT has a deadline of its own
		err = c.pace.add(n)
	}
	return n, c.paced(err)
}

// paced tells a deadline that passed within a packet from others.
func (c *conn) paced(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.ending.Load() {
		return errSlow
	}
	return err
}

// nextPacket reads a fixed header, and of a large PUBLISH all that follows it.
func (c *conn) nextPacket() error {
	c.letGo() // the library is done with the packet before
	if c.ending.Load() {
		return errEnding
	}
	first, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	late := c.in.Buffered() < 4 // its length may be yet to come
	if late {
		if err := c.beginPace(); err != nil {
			return err
		}
	}
	c.packet = 0
	if first&0xf0 != publishPacket {
		err = c.readLength(first, maxSmallPacket)
	} else if err = c.readLength(first, maxPacket-1); err == nil { // the library counts the first byte as well
		c.packet = c.left
	}
	if err == nil && !late && c.in.Buffered() < c.left {
		err = c.beginPace()
	}
	if err != nil || c.packet <= unaccounted {
		return c.paced(err)
	}
	return c.gather()
}

// beginPace sets the deadline of a packet that has not come yet. It replaces the one that
// the library has set for the time between packets.
func (c *conn) beginPace() error {
	if err := c.pace.begin(time.Now(), c.rooms.grace); err != nil {
		return err
	}
	if c.ending.Load() { // the new deadline replaced that of stopReading
		return errEnding
	}
	return nil
}

// gather reads a large packet into memory of its own, for which it takes room as the bytes
// come, and then makes it what Read gives out.
func (c *conn) gather() error {
	header := int(c.head.Size())
	p := make([]byte, unaccounted)
	_, _ = c.head.Read(p)
	c.head.Reset(nil)
	for n := header; c.left > 0; {
		if n == len(p) {
			began := time.Now()
			size, ok := c.grow(len(p), header+c.packet)
			if !ok {
				return errEnding
			}
			larger := make([]byte, size)
			copy(larger, p)
			p = larger
			c.pace.began = c.pace.began.Add(time.Since(began)) // the client did not make us wait
			if err := c.pace.set(); err != nil {
				return err
			}
		}
		more, err := c.more(p[n:min(len(p), n+c.left)])
		if n += more; err != nil {
			return err
		}
	}
	c.head.Reset(p[:header+c.packet])
	return c.arrived()
}

// grow takes room for a packet that has filled its memory, and returns to how many bytes
// of whole that may grow.
func (c *conn) grow(size, whole int) (int, bool) {
	larger := min(2*size, whole)
	switch {
	case c.receiving.bytes == 0: // it may wait, since it holds nothing
		return larger, c.receiving.await(larger, c.ended)
	case c.receiving.cover(larger):
		return larger, true
	}
	return whole, c.finishing.await(whole-c.receiving.bytes, c.ended)
}

// arrived waits for room for the samples of a packet that has come to its end.
func (c *conn) arrived() error {
	if !c.processing.await(processingBytes(c.packet), c.ended) {
		return errEnding
	}
	return nil
}

// letGo gives back the room of the packet that was read.
func (c *conn) letGo() {
	c.receiving.end()
	c.finishing.end()
	c.processing.end()
	if c.head.Size() > unaccounted {
		c.head.Reset(nil)
	}
}

// logIn notes which source the connection is of.
func (c *conn) logIn(source *access.Grant, key []byte) {
	c.source, c.key, c.grant = source.Name, key, source
	c.receiving.source, c.finishing.source, c.processing.source = c.source, c.source, c.source
}

// pause waits before more is read, and returns false if the connection ended first.
func (c *conn) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ended:
		return false
	}
}

// Write sends to the client, which must not stop reading: whoever answers it
// would stand still. What is left of a packet that went out in part is useless,
// so an error ends the connection.
func (c *conn) Write(p []byte) (int, error) {
	// Whose place is taken before the library has greeted it would be sent a
	// DISCONNECT without a CONNACK (MQTT-3.14.0-1).
	if !c.greeted.Swap(true) && len(p) > 0 && p[0]&0xf0 == disconnectPacket {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// NetConn is the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

// stopReading ends the connection once its messages are answered. The library
// sets a new deadline before each read; Read then sees that it ends.
func (c *conn) stopReading() {
	c.end()
	_ = c.SetReadDeadline(time.Unix(1, 0))
}

// Close ends the connection at once.
func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *conn) end() {
	c.ending.Store(true)
	c.endOnce.Do(func() { close(c.ended) })
}

var _ io.ReadWriteCloser = (*conn)(nil)
