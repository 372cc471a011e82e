package ingest

import (
	"bufio"
	"context"
	"net"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// slowStore is a store that takes a fixed time, like a disk.
type slowStore time.Duration

func (s slowStore) Append(ctx context.Context, _ []vehicle.Sample) error {
	select {
	case <-time.After(time.Duration(s)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// BenchmarkMQTTOneClient measures one gateway that sends QoS 1 messages as fast as the receive
// maximum allows, to a store that takes 1 ms.
func BenchmarkMQTTOneClient(b *testing.B) {
	f := newFixture(b)
	f.Store = slowStore(time.Millisecond)
	_, key := f.add(b, "gateway", access.AllVehicles())
	_, addr := startMQTT(b, f.Config)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	send := func(p []byte) {
		if _, err := conn.Write(p); err != nil {
			b.Error(err)
		}
	}
	in := bufio.NewReader(conn)
	acknowledged := func() {
		var p [4]byte // a CONNACK and a PUBACK of MQTT 3.1.1 both have four bytes
		for i := range p {
			if p[i], err = in.ReadByte(); err != nil {
				b.Fatal(err)
			}
		}
	}
	send(packet(0x10, field("MQTT"), []byte{4, 0xc2, 0, 30}, field("id"), field("gateway"), field(key)))
	acknowledged()
	window := make(chan struct{}, receiveMaximum)
	go func() {
		for i := range b.N {
			window <- struct{}{}
			id := i%60000 + 1
			send(packet(0x32, field(topicV1), []byte{byte(id >> 8), byte(id)}, []byte(sampleLine("V1", 1, 1))))
		}
	}()
	b.ResetTimer()
	for range b.N {
		acknowledged()
		<-window
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
