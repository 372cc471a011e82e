package ingest_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/test/testkit"
)

// FuzzMQTT sends any bytes after a login, or in place of it. The connection ends, no message comes,
// and only samples of the car's vehicles are stored.
func FuzzMQTT(f *testing.F) {
	sample := sampleLine("V1", 1, 1)
	for _, version := range []byte{4, 5} {
		properties := []byte(nil)
		if version == 5 {
			properties = []byte{0}
		}
		good := packet(0x32, field(topicV1), []byte{0, 1}, properties, []byte(sample))
		alias := packet(0x32, field(topicV1), []byte{0, 1, 3, 0x23, 0, 1}, []byte(sample))
		for _, sent := range [][]byte{
			good, append(good, good...), append(alias, packet(0x32, field(""), []byte{0, 2, 3, 0x23, 0, 1}, []byte(sample))...),
			packet(0x30, field(topicV1), properties, []byte(sample)),
			packet(0x34, field(topicV1), []byte{0, 1}, properties, []byte(sample)),
			packet(0x32, field("vehicles/V9/telemetry"), []byte{0, 1}, properties, []byte(sampleLine("V9", 1, 1))),
			packet(0x82, []byte{0, 1}, properties, field("#"), []byte{1}), packet(0xa2, []byte{0, 1}, properties, field("#")),
			packet(0x82, []byte{0, 1}, properties, field("#")), // without options
			{0xc0, 0}, {0xe0, 0}, {0xf0, 0}, {0x62, 2, 0, 1},
			{0x32, 0xff, 0xff, 0xff, 0x7f}, {0x32, 0xff, 0xff, 0xff, 0xff, 1}, nil,
		} {
			f.Add(version, true, sent)
		}
		f.Add(version, false, packet(0x10, field("MQTT"), []byte{version, 0xc6, 0, 30}, properties, field("id"), properties,
			field(topicV1), field(sample), field("car"), field("x")))
	}
	f.Add(byte(4), false, packet(0x10, field("MQIsdp"), []byte{3, 2, 0, 30}, field("id")))

	fixture := newFixture(f)
	store, key := fixture.store, fixture.key
	_, addr := startMQTT(f, fixture.Config)
	clients := 0
	f.Fuzz(func(t *testing.T, version byte, logsIn bool, sent []byte) {
		if clients++; logsIn {
			version, properties := 4+version%2, []byte(nil)
			if version == 5 {
				properties = []byte{0}
			}
			sent = append(packet(0x10, field("MQTT"), []byte{version, 0xc2, 0, 30}, properties, field(strconv.Itoa(clients)),
				field("car"), field(key)), sent...)
		}
		store.mu.Lock()
		store.samples = store.samples[:0]
		store.mu.Unlock()
		// One address has too few ports.
		from := &net.TCPAddr{IP: net.IPv4(127, byte(1+clients>>16&63), byte(clients>>8), byte(clients))}
		c, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", addr)
		testkit.NoError(t, err)
		defer c.Close()
		testkit.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		if _, err = c.Write(sent); err == nil {
			_ = c.(*net.TCPConn).CloseWrite() // fails if the server has closed the connection
		}
		raw := &rawClient{in: bufio.NewReader(c)}
		for n := 0; ; n++ {
			first, body, err := raw.tryRead()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the connection: got no end in time, want one")
			}
			if err != nil {
				break // perhaps within a packet
			}
			if (n == 0) != (first == connackType) {
				t.Fatalf("packet %d: got %#x, want CONNACK as the first, and only then", n, first)
			}
			switch first {
			case connackType, pubackType, subackType, pingrespType, disconnectType, 0xb0, 0x50, 0x70:
			default:
				t.Fatalf("the packet: got %#x % x, want one that is for a car", first, body)
			}
		}
		testkit.Await(t, "nothing is connected", func() bool { return fixture.metric(t, "carstate_mqtt_connections") == 0 })
		for _, s := range store.describe() {
			if !strings.HasPrefix(s, "V1 ") && !strings.HasPrefix(s, "V2 ") {
				t.Errorf("the store: got %s, want only V1 and V2", s)
			}
		}
	})
}
