package ingest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/netguard"
	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// startMQTT serves c on a free port until the test ends.
func startMQTT(t testing.TB, c Config) (m *MQTT, addr string) {
	t.Helper()
	l := testkit.Listen(t)
	m = NewMQTT(c)
	done := make(chan error, 1)
	go func() { done <- m.Serve(l) }()
	t.Cleanup(func() {
		if err := m.Shutdown(shutdownContext(t)); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return m, l.Addr().String()
}

// login connects with the fixture's source.
func (f *fixture) login(t *testing.T, addr string, version byte) *rawClient {
	t.Helper()
	return dialRaw(t, addr, version).logIn("car", f.key)
}

// startMQTTClient serves f until the test ends, and connects with the fixture's source.
func startMQTTClient(t *testing.T, f *fixture, version byte) (*MQTT, *rawClient) {
	t.Helper()
	m, addr := startMQTT(t, f.Config)
	return m, f.login(t, addr, version)
}

// bothVersions runs a test under MQTT 3.1.1 and 5.
func bothVersions(t *testing.T, test func(t *testing.T, version byte)) {
	t.Run("3.1.1", func(t *testing.T) { test(t, 4) })
	t.Run("5", func(t *testing.T) { test(t, 5) })
}

const topicV1 = "vehicles/V1/telemetry"

func TestMQTTAcknowledgesWhatIsStored(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, c := startMQTTClient(t, f, version)
		c.publish(2, 7, topicV1, sampleLine("V1", 1, 1))
		c.wantPuback(7, 0)
		c.publish(2, 8, "vehicles/V2/telemetry", `{"time":1795147200000,"signals":{"Vehicle.Speed":2}}`)
		c.wantPuback(8, 0)
		// One line is invalid. The other line must be stored, and the message acknowledged.
		c.publish(2, 9, topicV1, sampleLine("V1", 2, 3)+"\n"+sampleLine("V2", 2, 4))
		c.wantPuback(9, 0)
		// This message has QoS 0 and the retain flag, which has no effect.
		c.publish(1, 0, topicV1, sampleLine("V1", 3, 5))
		testkit.Await(t, "QoS 0 is stored", func() bool { return f.metric(t, "carstate_samples_accepted_total") == 4 })
		f.store.wants(t, "V1 1", "V2 2", "V1 3", "V1 5")
		f.wantMetric(t, 4, "carstate_samples_accepted_total", "protocol", "mqtt")
		f.wantMetric(t, 1, "carstate_samples_refused_total", "protocol", "mqtt", "reason", "vid_differs")
		f.wantMetric(t, 1, "carstate_mqtt_connections")
	})
}

// TestMQTTAcknowledgesNothingBefore checks that a message gets no acknowledgement if the store
// fails. The connection must be closed instead, under MQTT 5 with code 0x89.
func TestMQTTAcknowledgesNothingBefore(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		arrived, release := make(chan struct{}), make(chan error)
		f.store.append = func(context.Context) error {
			close(arrived)
			return <-release
		}
		_, c := startMQTTClient(t, f, version)
		c.publish(2, 7, topicV1, sampleLine("V1", 1, 1))
		<-arrived
		release <- errDisk
		c.wantClosed(0x89)
		f.wantMetric(t, 0, "carstate_samples_accepted_total")
		f.wantMetric(t, 1, "carstate_samples_refused_total", "reason", "not_stored")
	})
}

// TestMQTTPipelining checks that messages which a client pipelines while the store is busy are
// stored together. All PUBACKs, refusals included, must be sent in the order of the messages.
func TestMQTTPipelining(t *testing.T) {
	f := newFixture(t)
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	f.store.append = until(release, arrived)
	_, c := startMQTTClient(t, f, 5)
	c.publish(2, 1, topicV1, sampleLine("V1", 1, 1))
	<-arrived
	c.publish(2, 2, topicV1, sampleLine("V1", 5, 2)) // has a later time than the next
	c.publish(2, 3, topicV1, "hello")
	c.publish(2, 4, "vehicles/V9/telemetry", sampleLine("V9", 1, 9))
	c.publish(2, 5, topicV1, sampleLine("V1", 4, 5))
	c.wantPong() // all have been read, and none is acknowledged
	close(release)
	for id, code := range []byte{0, 0, 0x99, 0x87, 0} {
		c.wantPuback(uint16(id+1), code)
	}
	if n := len(arrived); n != 1 {
		t.Errorf("%d appends after the first, want 1", n)
	}
	f.store.wants(t, "V1 1", "V1 5", "V1 2")
}

// TestMQTTManyAtOnce checks that every message of a client that exceeds the receive maximum is
// stored and acknowledged, in the order of the messages.
func TestMQTTManyAtOnce(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, c := startMQTTClient(t, f, version)
		const n = 10 * receiveMaximum
		sent := c.flood(n, func(id int) string { return sampleLine("V1", id-n, 1) })
		c.wantPubacks(n)
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if got := len(f.store.describe()); got != n {
			t.Errorf("stored %d of %d", got, n)
		}
	})
}

// TestMQTTStoresNothingAfterAFailure checks that no later message of a connection is stored after
// one was not stored. The client sends the first message again, and its samples would then be older
// than the state.
func TestMQTTStoresNothingAfterAFailure(t *testing.T) {
	f := newFixture(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	calls := 0 // used by one goroutine at a time
	f.store.append = func(context.Context) error {
		if calls++; calls > 1 {
			return nil
		}
		close(arrived)
		<-release
		return errDisk
	}
	m, c := startMQTTClient(t, f, 5)
	c.publish(2, 1, topicV1, sampleLine("V1", 1, 1))
	<-arrived
	c.publish(2, 2, topicV1, sampleLine("V1", 2, 2))
	c.wantPong()
	close(release)
	c.wantClosed(0x89)
	if err := m.Shutdown(shutdownContext(t)); err != nil {
		t.Error(err)
	}
	f.store.wants(t)
}

// TestMQTTStoresWhatALeavingClientSent checks that a QoS 0 message is stored even if the client
// disconnects right after sending it.
func TestMQTTStoresWhatALeavingClientSent(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		arrived, release := make(chan struct{}), make(chan struct{})
		f.store.append = until(release, arrived)
		m, c := startMQTTClient(t, f, version)
		c.publish(0, 0, topicV1, sampleLine("V1", 1, 1))
		c.write([]byte{disconnectType, 0})
		<-arrived
		c.wantClosed(0)
		close(release)
		if err := m.Shutdown(shutdownContext(t)); err != nil {
			t.Error(err)
		}
		f.store.wants(t, "V1 1")
	})
}

// TestMQTTRefuses checks how messages are refused that can never be accepted: each is acknowledged,
// under MQTT 5 with a code, and the connection goes on.
func TestMQTTRefuses(t *testing.T) {
	good := sampleLine("V1", 1, 1)
	for name, r := range map[string]struct {
		topic, payload string
		code           byte
		reason         string // no sample is counted if it is ""
	}{
		"another's vehicle":       {"vehicles/V9/telemetry", sampleLine("V9", 1, 1), 0x87, "not_allowed"},
		"another topic":           {"vehicles/V1/state", good, 0x90, "topic"},
		"no vehicle in the topic": {"vehicles//telemetry", good, 0x90, "topic"},
		"wildcards":               {"vehicles/+/telemetry", good, 0x90, "topic"},
		"a shared topic":          {"$share/g/" + topicV1, good, 0x90, "topic"},
		"a very long topic":       {strings.Repeat("a", 65535), good, 0x90, "topic"},
		"about a broker":          {"$SYS/broker/connection/b/state", "1", 0, ""},
		"no JSON":                 {topicV1, "hello", 0x99, "malformed"},
		"another vid":             {topicV1, sampleLine("V2", 1, 1), 0x99, "vid_differs"},
		"nothing":                 {topicV1, "", 0x99, "empty"},
		"too large a sample":      {topicV1, strings.Repeat("x", MaxSample+1), 0x99, "over_limit"},
		"too many samples":        {topicV1, strings.Repeat("{}\n", MaxSamples+1), 0x99, "over_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			bothVersions(t, func(t *testing.T, version byte) {
				f := newFixture(t)
				_, c := startMQTTClient(t, f, version)
				code, refused := r.code, 0.0
				if version == 4 {
					code = 0
				}
				c.publish(3, 7, r.topic, r.payload) // retained, which has no effect
				c.wantPuback(7, code)
				c.publish(0, 0, r.topic, r.payload)
				c.publish(2, 8, topicV1, good)
				c.wantPuback(8, 0)
				f.store.wants(t, "V1 1")
				if r.reason != "" {
					refused = 2
					f.wantMetric(t, refused, MetricRefused, "reason", r.reason)
				}
				f.wantMetric(t, refused, MetricRefused)
			})
		})
	}
}

// TestMQTTRefusesWithoutAReason checks messages that MQTT 5 forbids, and closes the connection for:
// the CONNACK has announced it. An MQTT 3.1.1 client does not know, and gets an acknowledgement.
func TestMQTTRefusesWithoutAReason(t *testing.T) {
	large := make([]byte, maxPacket)
	for name, r := range map[string]struct {
		first, ack, disconnect byte
		payload                []byte
		reason                 string
	}{
		"QoS 2":     {0x34, 0x50, 0x9b, []byte(sampleLine("V1", 1, 1)), "qos"},
		"too large": {0x32, pubackType, 0x95, large, "over_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			bothVersions(t, func(t *testing.T, version byte) {
				f := newFixture(t)
				_, c := startMQTTClient(t, f, version)
				p := packet(r.first, field(topicV1), []byte{0, 7}, c.properties(), r.payload)
				if version == 5 {
					go func() { _, _ = c.conn.Write(p) }()
					c.wantClosed(r.disconnect)
				} else {
					c.write(p)
					if first, body := c.read(); first != r.ack || !bytes.Equal(body, []byte{0, 7}) {
						t.Errorf("got packet %#x % x, want %#x of 7", first, body, r.ack)
					}
					c.write([]byte{0x62, 2, 0, 7}) // PUBREL
					if first, body := c.read(); first != 0x70 || !bytes.Equal(body, []byte{0, 7}) {
						t.Errorf("got packet %#x % x, want PUBCOMP of 7", first, body)
					}
					c.wantPong()
				}
				f.store.wants(t)
				f.wantMetric(t, 1, MetricRefused, "reason", r.reason)
			})
		})
	}
}

func TestMQTTConnectNeedsASource(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		removed, removedKey := f.add(t, "gone", access.AllVehicles())
		f.remove(removed)
		_, otherKey := f.add(t, "other", access.AllVehicles())
		_, addr := startMQTT(t, f.Config)
		bad := byte(0x86)
		if version == 4 {
			bad = 5
		}
		for _, login := range [][2]string{
			{"car", "wrong"}, {"car", mistyped(f.key)}, {"nobody", f.key}, {"car", otherKey}, {"gone", removedKey},
			{"", ""}, {"", f.key}, {"car", ""},
		} {
			c := dialRaw(t, addr, version)
			if code := c.connect(login[0], login[1], "", 30); code != bad {
				t.Errorf("%s: CONNACK code %#x, want %#x", login[0], code, bad)
			}
			c.wantClosed(0)
		}
		f.wantMetric(t, 8, "carstate_mqtt_connections_refused_total", "reason", "credentials")
	})
}

func TestMQTTChecksTheSourceAtEachMessage(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, c := startMQTTClient(t, f, version)
		c.publish(2, 1, topicV1, sampleLine("V1", 1, 1))
		c.wantPuback(1, 0)
		f.remove(f.source)
		c.publish(2, 2, topicV1, sampleLine("V1", 2, 2))
		c.wantClosed(0x87)
		f.store.wants(t, "V1 1")
	})
}

func TestMQTTReadOnlyEndsConnections(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		var readOnly atomic.Bool
		f.ReadOnly = readOnly.Load
		f.Ready = func() error {
			if readOnly.Load() {
				return errors.New("read-only")
			}
			return nil
		}
		_, addr := startMQTT(t, f.Config)
		c := f.login(t, addr, version)
		c.publish(2, 1, topicV1, sampleLine("V1", 1, 1))
		c.wantPuback(1, 0)
		readOnly.Store(true)
		c.publish(2, 2, topicV1, sampleLine("V1", 2, 2))
		c.wantClosed(0x88)
		f.store.wants(t, "V1 1")
		f.wantMetric(t, 1, "carstate_ingest_request_duration_seconds", "outcome", "read_only")
		if code := dialRaw(t, addr, version).connect("car", f.key, "", 30); code == 0 {
			t.Error("a new connection: got CONNACK code 0, want a refusal")
		}
		f.wantMetric(t, 1, "carstate_mqtt_connections_refused_total", "reason", "read_only")
		f.wantMetric(t, 0, "carstate_mqtt_connections_refused_total", "reason", "not_ready")
	})
}

// TestMQTTDropsWills checks that a will is dropped, so that nothing is published when a connection
// breaks.
func TestMQTTDropsWills(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, addr := startMQTT(t, f.Config)
		for _, topic := range []string{topicV1, "vehicles/V9/telemetry", "somewhere/else"} {
			c := dialRaw(t, addr, version)
			if code := c.connect("car", f.key, topic, 30); code != 0 {
				t.Fatalf("CONNACK code %#x", code)
			}
			_ = c.conn.Close()
			testkit.Await(t, "the connection is gone", func() bool { return f.metric(t, "carstate_mqtt_connections") == 0 })
		}
		f.store.wants(t)
	})
}

// TestMQTTClientIDsAreASourcesOwn checks that clients of two sources may have the same client ID
// without ending each other's session. A second client of the same source must take over the
// session of the first.
func TestMQTTClientIDsAreASourcesOwn(t *testing.T) {
	f := newFixture(t)
	_, otherKey := f.add(t, "other", access.AllVehicles())
	_, addr := startMQTT(t, f.Config)
	first := f.login(t, addr, 4)
	second := dialRaw(t, addr, 4).logIn("other", otherKey)
	first.wantPong()
	second.wantPong()
	// A second client of the same source takes over the session.
	third := f.login(t, addr, 5)
	third.wantPong()
	second.wantPong()
	if _, _, err := first.tryRead(); err == nil {
		// Under 3.1.1 the library may send a packet before it closes the connection.
		first.wantClosed(0)
	}
}

// TestMQTTKeepAlive checks that a client that is silent for too long is disconnected.
func TestMQTTKeepAlive(t *testing.T) {
	testkit.Slow(t, "a keep-alive time is in whole seconds")
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, addr := startMQTT(t, f.Config)
		c := dialRaw(t, addr, version)
		c.connect("car", f.key, "", 1)
		c.wantClosed(0x8d)
	})
}

func TestMQTTNotReady(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		f.Ready = func() error { return errDisk }
		_, addr := startMQTT(t, f.Config)
		wants := byte(0x88)
		if version == 4 {
			wants = 3
		}
		c := dialRaw(t, addr, version)
		if code := c.connect("car", f.key, "", 30); code != wants {
			t.Errorf("CONNACK code %#x, want %#x", code, wants)
		}
		c.wantClosed(0)
	})
}

// TestMQTTUnreadSource checks a source whose record this node cannot read because a newer version
// wrote the record. At login and at later messages, the client must get a code that means that the
// server is unavailable, not that its key is wrong.
func TestMQTTUnreadSource(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, addr := startMQTT(t, f.Config)
		in := f.login(t, addr, version)
		f.Sources.Lose(f.source.Name)
		login, later := byte(0x88), byte(0x88)
		if version == 4 {
			login, later = 3, 0
		}
		c := dialRaw(t, addr, version)
		if code := c.connect("car", f.key, "", 30); code != login {
			t.Errorf("CONNACK code %#x, want %#x", code, login)
		}
		c.wantClosed(0)
		in.publish(2, 1, "vehicles/V1/telemetry", sampleLine("V1", 1, 1))
		in.wantClosed(later)
		f.store.wants(t)
	})
}

func TestMQTTRefusesTheNewestWhenFull(t *testing.T) {
	f := newFixture(t)
	f.MaxConnections = 1
	_, addr := startMQTT(t, f.Config)
	first := f.login(t, addr, 5)
	dialRaw(t, addr, 5).wantClosed(0)
	first.wantPong()
	f.wantMetric(t, 1, "carstate_mqtt_connections_refused_total", "reason", "full")
}

// TestMQTTConnectionsOfOneSource checks that one source cannot keep others from logging in.
func TestMQTTConnectionsOfOneSource(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		f.MaxConnections = 8
		m, addr := startMQTT(t, f.Config)
		_, key := f.add(t, "gateway", f.source.Vehicles)
		logIn := func(id, source, key string) (*rawClient, byte) {
			c := dialRaw(t, addr, version)
			c.id = id
			return c, c.connect(source, key, "", 30)
		}
		var first *rawClient
		for i := range 6 {
			c, code := logIn(fmt.Sprint("id", i), "car", f.key)
			want := byte(0)
			if i == 0 {
				first = c
			}
			if i >= 4 {
				want = map[byte]byte{4: 3, 5: 0x97}[version]
				c.wantClosed(0)
			}
			if code != want {
				t.Errorf("connection %d: CONNACK code %#x, want %#x", i, code, want)
			}
		}
		other, code := logIn("id", "gateway", key)
		if code != 0 {
			t.Errorf("another source: CONNACK code %#x", code)
		}
		f.wantMetric(t, 2, "carstate_mqtt_connections_refused_total", "reason", "share")
		if g, _ := f.Sources.Get("car"); g.Seen().Text != errShare.text {
			t.Errorf("got last refusal %q, want %q", g.Seen().Text, errShare.text)
		}
		for _, c := range []*rawClient{first, other} {
			c.write([]byte{disconnectType, 0})
			c.wantClosed(0)
		}
		testkit.Await(t, "the slots are given back", func() bool { return m.slots.inUse() == 3 })
		if _, code := logIn("id9", "car", f.key); code != 0 {
			t.Errorf("in its place: CONNACK code %#x", code)
		}
	})
}

// TestMQTTStrangersMakeRoom checks that connections that do not log in do not lock out a client
// with a valid key, and that no client that has logged in is evicted.
func TestMQTTStrangersMakeRoom(t *testing.T) {
	for name, useTLS := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			const strangers = 7
			f.MaxConnections = 1 + strangers
			config := f.useTLS(t)
			m, addr := startMQTT(t, f.Config)
			if useTLS {
				l := testkit.Listen(t)
				addr = l.Addr().String()
				go func() { _ = m.ServeTLS(l) }()
			}
			login := func(source string) *rawClient {
				_, key := f.add(t, source, access.AllVehicles())
				c := dialRaw(t, addr, 5)
				if useTLS {
					c.conn = tls.Client(c.conn, config)
					c.in = bufio.NewReader(c.conn)
				}
				c.logIn(source, key)
				return c
			}
			all := []*rawClient{login("first")}
			for i := range strangers {
				dialRaw(t, addr, 5).write([]byte{0x10}[:i%2]) // half a CONNECT, or nothing
			}
			testkit.Await(t, "the strangers are there", func() bool { return m.guard.Count(netguard.Silent) == strangers })
			for i := range strangers {
				all = append(all, login(fmt.Sprintf("gateway%d", i)))
			}
			dialRaw(t, addr, 5).wantClosed(0)
			for _, c := range all {
				c.wantPong()
			}
			f.wantMetric(t, strangers+1, "carstate_mqtt_connections_refused_total", "reason", "full")
			f.wantMetric(t, 0, "carstate_mqtt_connections_refused_total", "reason", "no_connect")
		})
	}
}

// TestMQTTStrangers checks invalid first packets. The server must neither wait for the number of
// bytes that such a packet announces, nor allocate memory for them.
func TestMQTTStrangers(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	for name, bytes := range map[string][]byte{
		"a huge length": {0x10, 0xff, 0xff, 0x7f},
		"a longer one":  {0x10, 0xff, 0xff, 0xff, 0x7f},
		"no CONNECT":    {0x30, 2, 0, 0},
		"HTTP":          []byte("GET / HTTP/1.1\r\n\r\n"),
		"empty CONNECT": {0x10, 0},
	} {
		c := dialRaw(t, addr, 4)
		c.write(bytes)
		for {
			if _, _, err := c.tryRead(); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: the connection stays open", name)
				}
				break
			}
		}
	}
	f.login(t, addr, 4).wantPong()
}

// TestMQTTShutdownAcknowledges checks that a message that is being stored during a shutdown is
// still acknowledged.
func TestMQTTShutdownAcknowledges(t *testing.T) {
	f := newFixture(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	f.store.append = until(release, arrived)
	m, addr := startMQTT(t, f.Config)
	c := f.login(t, addr, 5)
	idle := dialRaw(t, addr, 5) // sends no CONNECT
	testkit.Await(t, "both are connected", func() bool { return f.metric(t, "carstate_mqtt_connections") == 2 })
	c.publish(2, 7, topicV1, sampleLine("V1", 1, 1))
	<-arrived
	done := make(chan error, 1)
	go func() { done <- m.Shutdown(shutdownContext(t)) }()
	idle.wantClosed(0)
	close(release)
	c.wantPuback(7, 0)
	c.wantClosed(0)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestMQTTShutdownEnds(t *testing.T) {
	f := newFixture(t)
	arrived := make(chan struct{})
	f.store.append = func(ctx context.Context) error {
		close(arrived)
		<-ctx.Done()
		return ctx.Err()
	}
	m, c := startMQTTClient(t, f, 5)
	c.publish(2, 7, topicV1, sampleLine("V1", 1, 1))
	<-arrived
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown: %v", err)
	}
	// The connection must end without an acknowledgement. The server may send a DISCONNECT that
	// says that the sample was not stored.
	first, body, err := c.tryRead()
	if err == nil && first == disconnectType && body[0] == 0x89 {
		first, body, err = c.tryRead()
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection goes on: %#x % x, %v", first, body, err)
	}
	f.store.wants(t)
}

// TestMQTTPanic checks that a panic in the goroutine of a connection ends only this connection. If a
// car causes it repeatedly, the log must have only one line.
func TestMQTTPanic(t *testing.T) {
	f := newFixture(t)
	log := new(testkit.Buffer)
	f.Log = slog.New(slog.NewTextHandler(log, nil))
	f.Admit = func(vehicle.ID) bool { panic("secret") }
	_, addr := startMQTT(t, f.Config)
	other := f.login(t, addr, 5)
	for range 3 {
		c := dialRaw(t, addr, 5)
		c.id = "panics"
		c.logIn("car", f.key).publish(2, 1, topicV1, sampleLine("V1", 1, 1))
		c.wantClosed(0)
	}
	other.wantPong()
	if n := log.Count("cannot be handled"); n != 1 || log.Count("secret") > 0 {
		t.Errorf("got %d lines, want 1:\n%s", n, log)
	}
}
