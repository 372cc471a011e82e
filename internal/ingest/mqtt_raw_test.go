package ingest_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

// rawClient sends bytes that no library would.
type rawClient struct {
	t       *testing.T
	version byte
	id      string
	conn    net.Conn
	in      *bufio.Reader
}

const (
	connackType    = 0x20
	pubackType     = 0x40
	subackType     = 0x90
	pingrespType   = 0xd0
	disconnectType = 0xe0
)

func dialRaw(t *testing.T, addr string, version byte) *rawClient {
	t.Helper()
	c := testkit.Dial(t, addr)
	return &rawClient{t, version, "id", c, bufio.NewReader(c)}
}

func field(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }

func packet(first byte, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	return append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
}

func (c *rawClient) write(p []byte) {
	c.t.Helper()
	_, err := c.conn.Write(p)
	testkit.NoError(c.t, err)
}

func (c *rawClient) properties(p ...byte) []byte {
	if c.version < 5 {
		return nil
	}
	return append([]byte{byte(len(p))}, p...)
}

// connect returns the code of the CONNACK.
func (c *rawClient) connect(user, password string, keepAlive uint16) byte {
	c.t.Helper()
	head := binary.BigEndian.AppendUint16(append(field("MQTT"), c.version, 0xc2), keepAlive)
	c.write(packet(0x10, head, c.properties(), field(c.id), field(user), field(password)))
	first, body := c.read()
	if first != connackType || len(body) < 2 {
		c.t.Fatalf("the answer to CONNECT: got %#x % x, want CONNACK", first, body)
	}
	return body[1]
}

func (c *rawClient) logIn(source, key string) *rawClient {
	c.t.Helper()
	if code := c.connect(source, key, 30); code != 0 {
		c.t.Fatalf("CONNACK: got code %#x, want 0", code)
	}
	return c
}

// flags are the low bits of the header: 2 is QoS 1, 4 QoS 2, 1 retain.
func (c *rawClient) publish(flags byte, id uint16, topic, payload string, properties ...byte) {
	c.t.Helper()
	head := field(topic)
	if flags&6 != 0 {
		head = binary.BigEndian.AppendUint16(head, id)
	}
	c.write(packet(0x30|flags, head, c.properties(properties...), []byte(payload)))
}

// flood sends messages 1 to n in the background.
func (c *rawClient) flood(n int, payload func(id int) string) <-chan error {
	sent := make(chan error, 1)
	go func() {
		for id := 1; id <= n; id++ {
			head := append(field(topicV1), byte(id>>8), byte(id))
			if _, err := c.conn.Write(packet(0x32, head, c.properties(), []byte(payload(id)))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	return sent
}

func (c *rawClient) wantPubacks(n int) {
	c.t.Helper()
	for id := range uint16(n) {
		c.wantPuback(id+1, 0)
	}
}

func (c *rawClient) read() (first byte, body []byte) {
	c.t.Helper()
	first, body, err := c.tryRead()
	if err != nil {
		c.t.Fatalf("the packet: got error %v, want none", err)
	}
	return first, body
}

func (c *rawClient) tryRead() (first byte, body []byte, err error) {
	if first, err = c.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(c.in)
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, n)
	_, err = io.ReadFull(c.in, body)
	return first, body, err
}

func (c *rawClient) wantPuback(id uint16, code byte) {
	c.t.Helper()
	first, body := c.read()
	got := byte(0)
	if len(body) > 2 {
		got = body[2]
	}
	if first != pubackType || len(body) < 2 || binary.BigEndian.Uint16(body) != id || got != code {
		c.t.Fatalf("got packet %#x % x; want the PUBACK of %d with code %#x", first, body, id, code)
	}
}

// wantClosed expects a DISCONNECT in MQTT 5, unless code is 0, and nothing more.
func (c *rawClient) wantClosed(code byte) {
	c.t.Helper()
	if c.version == 5 && code != 0 {
		if first, body := c.read(); first != disconnectType || len(body) < 1 || body[0] != code {
			c.t.Fatalf("got packet %#x % x; want DISCONNECT %#x", first, body, code)
		}
	}
	first, body, err := c.tryRead()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("the connection: got %#x % x, error %v; want its end", first, body, err)
	}
}

// wantPong also checks that all packets before were read.
func (c *rawClient) wantPong() {
	c.t.Helper()
	c.write([]byte{0xc0, 0})
	if first, body := c.read(); first != pingrespType {
		c.t.Fatalf("got packet %#x % x; want PINGRESP", first, body)
	}
}
