package ingest_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"example.org/carstate/internal/testkit"
)

// rawClient is an MQTT client that works with bytes, so that a test sees what is sent and can send
// what no library would.
type rawClient struct {
	t       *testing.T
	version byte // protocol level: 4 is MQTT 3.1.1, 5 is MQTT 5
	id      string
	conn    net.Conn
	in      *bufio.Reader
}

// Packet types, as the first byte of a packet.
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

// packet returns a packet: a fixed header followed by the parts.
func packet(first byte, parts ...[]byte) []byte {
	var body []byte
	for _, p := range parts {
		body = append(body, p...)
	}
	out := []byte{first}
	n := len(body)
	for {
		b := byte(n & 0x7f)
		if n >>= 7; n > 0 {
			out = append(out, b|0x80)
			continue
		}
		return append(append(out, b), body...)
	}
}

func (c *rawClient) write(p []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(p); err != nil {
		c.t.Fatal(err)
	}
}

// properties returns an MQTT 5 property list, or nothing under 3.1.1.
func (c *rawClient) properties(p ...byte) []byte {
	if c.version < 5 {
		return nil
	}
	return append([]byte{byte(len(p))}, p...)
}

// connect sends a CONNECT and returns the reason code of the CONNACK. If willTopic is not empty,
// the CONNECT has a will, which is a sample on that topic.
func (c *rawClient) connect(user, password, willTopic string, keepAlive uint16) byte {
	c.t.Helper()
	flags, will := byte(0xc2), []byte(nil)
	if willTopic != "" {
		flags |= 0x04
		will = append(append(c.properties(), field(willTopic)...), field(sampleLine("V1", 9, 99))...)
	}
	head := append(field("MQTT"), c.version, flags)
	head = binary.BigEndian.AppendUint16(head, keepAlive)
	c.write(packet(0x10, head, c.properties(), field(c.id), will, field(user), field(password)))
	first, body := c.read()
	if first != connackType || len(body) < 2 {
		c.t.Fatalf("CONNECT was answered by %#x % x", first, body)
	}
	return body[1]
}

// logIn connects as a source, and checks that the server accepts it.
func (c *rawClient) logIn(source, key string) *rawClient {
	c.t.Helper()
	if code := c.connect(source, key, "", 30); code != 0 {
		c.t.Fatalf("CONNACK code %#x", code)
	}
	return c
}

// publish sends a message. flags are the low bits of the fixed header: 2 is QoS 1, 4 is QoS 2, 1 is
// retain.
func (c *rawClient) publish(flags byte, id uint16, topic, payload string, properties ...byte) {
	c.t.Helper()
	head := field(topic)
	if flags&6 != 0 {
		head = binary.BigEndian.AppendUint16(head, id)
	}
	c.write(packet(0x30|flags, head, c.properties(properties...), []byte(payload)))
}

// flood sends n messages with QoS 1 and the identifiers 1 to n in the background. The channel gets
// the error, or nil.
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

// wantPubacks checks that the next n packets are the PUBACKs of the messages 1 to n, each with code
// 0.
func (c *rawClient) wantPubacks(n int) {
	c.t.Helper()
	for id := range uint16(n) {
		c.wantPuback(id+1, 0)
	}
}

// read returns the first byte of the next packet and its body.
func (c *rawClient) read() (first byte, body []byte) {
	c.t.Helper()
	first, body, err := c.tryRead()
	if err != nil {
		c.t.Fatalf("no packet came: %v", err)
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

// wantPuback checks that the next packet is the PUBACK of message id with the given code.
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

// wantClosed checks that the server closes the connection and sends nothing more. Under MQTT 5, if
// code is not 0, a DISCONNECT with that code must come first. Under MQTT 3.1.1, and if code is 0,
// no packet may come.
func (c *rawClient) wantClosed(code byte) {
	c.t.Helper()
	if c.version == 5 && code != 0 {
		if first, body := c.read(); first != disconnectType || len(body) < 1 || body[0] != code {
			c.t.Fatalf("got packet %#x % x; want DISCONNECT %#x", first, body, code)
		}
	}
	first, body, err := c.tryRead()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("the connection goes on: %#x % x, %v", first, body, err)
	}
}

// wantPong checks that the connection is alive, and that the server has sent no packet that was not
// read yet.
func (c *rawClient) wantPong() {
	c.t.Helper()
	c.write([]byte{0xc0, 0})
	if first, body := c.read(); first != pingrespType {
		c.t.Fatalf("got packet %#x % x; want PINGRESP", first, body)
	}
}
