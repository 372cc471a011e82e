package ingest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a client's connection. It guards its beginning, which the MQTT library
// does not, and lets us end it between two packets.
type conn struct {
	net.Conn
	head   bytes.Reader // what begin has read, for Read to give out again
	ending atomic.Bool
	source string // the source that logged in; set before its first message
	key    []byte // and its key, to ask again at each message
	queue  queue  // its messages that are not answered yet
}

func newConn(nc net.Conn) *conn {
	c := &conn{Conn: nc}
	c.queue.changed = sync.NewCond(&c.queue.mu)
	return c
}

var (
	errNoConnect = errors.New("the first packet is no MQTT CONNECT of reasonable size")
	errEnding    = errors.New("the service is shutting down")
)

// begin sees that what arrives is an MQTT CONNECT of reasonable size, and that
// all of it arrives before the timeout. The library would allocate whatever
// length a stranger claims and wait for ever.
func (c *conn) begin(timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if c.ending.Load() {
		return errEnding
	}
	// The fixed header: type and flags, then the length, 7 bits a byte.
	var head [4]byte
	length := 0
	for i := range head {
		if _, err := io.ReadFull(c.Conn, head[i:i+1]); err != nil {
			return err
		}
		if i == 0 {
			if head[0] != 1<<4 {
				return errNoConnect
			}
			continue
		}
		length |= int(head[i]&0x7f) << (7 * (i - 1))
		if head[i] < 0x80 {
			if length > maxConnect {
				return errNoConnect
			}
			c.head.Reset(append([]byte(nil), head[:i+1]...))
			return nil
		}
	}
	return errNoConnect
}

// Read reads what the client sends. At the end it first waits until all messages
// are answered, because the library closes the connection at once.
func (c *conn) Read(p []byte) (int, error) {
	if c.head.Len() > 0 {
		return c.head.Read(p)
	}
	n, err := 0, errEnding
	if !c.ending.Load() {
		n, err = c.Conn.Read(p)
	}
	if err != nil {
		c.queue.wait()
	}
	return n, err
}

// Write sends to the client, which must not stop reading: whoever answers it
// would stand still. What is left of a packet that went out in part is useless,
// so an error ends the connection.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// stopReading ends the connection once its messages are answered. The library
// sets a new deadline before each read; Read then sees that it ends.
func (c *conn) stopReading() {
	c.ending.Store(true)
	_ = c.SetReadDeadline(time.Unix(1, 0))
}
