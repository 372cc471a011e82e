package sample

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/nodeprocess"
)

// car is a vehicle that is connected by MQTT 3.1.1 and publishes its own samples.
type car struct {
	conn    net.Conn
	body    *body
	publish []byte // the packet; body is its last part
	answer  [4]byte
}

// source is the source whose key a car uses.
type source struct{ name, key string }

// dial connects a car and prepares a packet with one sample at QoS 1. It ends the measurement if
// the car is refused.
func dial(ctx context.Context, addr string, as source, number int) *car {
	var d net.Dialer
	conn := must.Get(d.DialContext(ctx, "tcp", addr))
	c := &car{conn: conn, body: newBody(number, 1, 1)}
	text := func(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }
	packet := func(first byte, parts ...[]byte) []byte {
		rest := bytes.Join(parts, nil)
		return append(binary.AppendUvarint([]byte{first}, uint64(len(rest))), rest...)
	}
	connect := packet(0x10, text("MQTT"), []byte{4, 0xc2, 1, 44}, text(vid(number)), text(as.name), text(as.key))
	must.Get(conn.Write(connect))
	must.Get(io.ReadFull(conn, c.answer[:]))
	if c.answer != [4]byte{0x20, 2} {
		must.Fail("a car was refused by MQTT")
	}
	c.publish = packet(0x32, text("vehicles/"+vid(number)+"/telemetry"), []byte{0, 1}, c.body.text)
	c.body.text = c.publish[len(c.publish)-len(c.body.text):]
	return c
}

// send publishes one sample and returns once it is acknowledged. Any other answer ends the
// measurement.
func (c *car) send(at time.Time) {
	c.body.stamp(at)
	must.Get(c.conn.Write(c.publish))
	must.Get(io.ReadFull(c.conn, c.answer[:]))
	if c.answer != [4]byte{0x40, 2, 0, 1} {
		must.Fail("the answer is not PUBACK")
	}
}

// connected is the result of a measurement with a number of connected cars.
type connected struct {
	rate   float64 // samples acknowledged per second
	acks   *latencies
	cpu    time.Duration // of the node, per sample
	memory float64       // bytes of the node per connection, before the first sample
}

// runMQTT connects a number of cars, which use the sources in turn. For the time lasting, each car
// sends its next sample when the previous one is acknowledged.
func runMQTT(ctx context.Context, n *node, sources []source, number int, lasting time.Duration) connected {
	before := must.Get(n.Resident())
	cars := make([]*car, number)
	defer func() {
		for _, c := range cars {
			if c != nil {
				_ = c.conn.Close()
			}
		}
	}()
	const dialers = 64
	together(dialers, func(worker int) {
		for i := worker; i < number; i += dialers {
			cars[i] = dial(ctx, n.Address(nodeprocess.MQTT), sources[i%len(sources)], i)
		}
	})
	after, cpu := must.Get(n.Resident()), must.Get(n.CPU())
	acks, start := new(latencies), time.Now()
	together(number, func(i int) {
		for at := time.Now(); at.Sub(start) <= lasting; at = time.Now() {
			must.Do(ctx.Err())
			cars[i].send(at)
			acks.add(time.Since(at))
		}
	})
	took, end := time.Since(start), must.Get(n.CPU())
	return connected{
		rate:   float64(len(acks.took)) / took.Seconds(),
		acks:   acks,
		cpu:    (end - cpu) / time.Duration(max(len(acks.took), 1)),
		memory: float64(after-before) / float64(number),
	}
}
