package ingest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a client's connection. It follows where packets begin and end, so that
// it can guard what the MQTT library does not: the library allocates whatever
// length a packet claims, at once, and several times that while it reads it. So
// a packet gets to the library only when there is room for it (see [rooms]).
type conn struct {
	net.Conn
	rooms *rooms

	// Used by the goroutine that reads.
	in     *bufio.Reader // of Conn
	head   bytes.Reader  // the fixed header that was read, for Read to give out again
	left   int           // bytes of the packet that Read has not given out
	packet int           // bytes of the packet after its header, if it is a PUBLISH
	// What the packet being read has taken of the rooms.
	receiving, processing int

	source string // the source that logged in; set before its first message
	key    []byte // and its key, to ask again at each message
	queue  queue  // its messages that are not answered yet

	greeted atomic.Bool // something was sent
	ending  atomic.Bool
	endOnce sync.Once
	ended   chan struct{} // closed when ending, for who waits for room
}

func newConn(nc net.Conn, r *rooms) *conn {
	c := &conn{Conn: nc, rooms: r, in: bufio.NewReaderSize(nc, readBuffer), ended: make(chan struct{})}
	c.queue.changed = sync.NewCond(&c.queue.mu)
	return c
}

var (
	errNoConnect = errors.New("the first packet is no MQTT CONNECT of reasonable size")
	errTooLarge  = errors.New("the packet is larger than its type may be")
	errEnding    = errors.New("the service is shutting down")
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
	if c.ending.Load() {
		return 0, errEnding
	}
	n, err = c.in.Read(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 && c.packet > 0 {
		// It is all there. With the last byte the library begins to work on
		// it; it comes back here when it has.
		var ok bool
		if c.processing, ok = c.rooms.processing.take(processingBytes(c.packet), c.ended); !ok {
			return 0, errEnding
		}
	}
	return n, err
}

// nextPacket reads a fixed header, and waits for room for what follows it.
func (c *conn) nextPacket() error {
	c.letGo() // the library is done with the packet before
	if c.ending.Load() {
		return errEnding
	}
	first, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	c.packet = 0
	if first&0xf0 != publishPacket {
		return c.readLength(first, maxSmallPacket)
	}
	// The library counts the first byte as well.
	if err := c.readLength(first, maxPacket-1); err != nil {
		return err
	}
	c.packet = c.left
	if c.packet <= unaccounted {
		return nil
	}
	var ok bool
	if c.receiving, ok = c.rooms.receiving.take(c.packet, c.ended); !ok {
		return errEnding
	}
	// Who has taken room must use it. This replaces the deadline that the
	// library has set for the packet, which may have passed while we waited.
	err = c.SetReadDeadline(time.Now().Add(c.rooms.packetTimeout))
	if c.ending.Load() {
		return errEnding
	}
	return err
}

// letGo gives back the room of the packet that was read.
func (c *conn) letGo() {
	c.rooms.receiving.give(c.receiving)
	c.rooms.processing.give(c.processing)
	c.receiving, c.processing = 0, 0
}

// hand passes n bytes of the packet's room on to whoever keeps what the packet
// has become, and returns how many they are.
func (c *conn) hand(n int) int {
	n = min(n, c.processing)
	c.processing -= n
	return n
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
