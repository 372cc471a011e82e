package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/test/testkit"
)

func startMQTT(t testing.TB, c ingest.Config) (m *ingest.MQTT, addr string) {
	t.Helper()
	l := testkit.Listen(t)
	m = ingest.NewMQTT(c)
	done := make(chan error, 1)
	go func() { done <- m.Serve(l) }()
	t.Cleanup(func() {
		if err := m.Shutdown(shutdownContext(t)); err != nil {
			t.Errorf("Shutdown: got %v, want no error", err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: got %v, want %v", err, net.ErrClosed)
		}
	})
	return m, l.Addr().String()
}

func (f *fixture) login(t *testing.T, addr string, version byte) *rawClient {
	t.Helper()
	return dialRaw(t, addr, version).logIn("car", f.key)
}

func startMQTTClient(t *testing.T, f *fixture, version byte) (*ingest.MQTT, *rawClient) {
	t.Helper()
	m, addr := startMQTT(t, f.Config)
	return m, f.login(t, addr, version)
}

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
		c.publish(2, 9, topicV1, sampleLine("V1", 2, 3)+"\n"+sampleLine("V2", 2, 4))
		c.wantPuback(9, 0)
		c.publish(1, 0, topicV1, sampleLine("V1", 3, 5))
		testkit.Await(t, "QoS 0 is stored", func() bool { return f.metric(t, "carstate_samples_accepted_total") == 4 })
		f.store.wants(t, "V1 1", "V2 2", "V1 3", "V1 5")
		f.wantMetric(t, 4, "carstate_samples_accepted_total", "protocol", "mqtt")
		f.wantMetric(t, 1, "carstate_samples_refused_total", "protocol", "mqtt", "reason", "vid_differs")
		f.wantMetric(t, 1, "carstate_mqtt_connections")
	})
}

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

func TestMQTTPipelining(t *testing.T) {
	f := newFixture(t)
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	f.store.append = until(release, arrived)
	_, c := startMQTTClient(t, f, 5)
	c.publish(2, 1, topicV1, sampleLine("V1", 1, 1))
	<-arrived
	c.publish(2, 2, topicV1, sampleLine("V1", 5, 2)) // later than the next
	c.publish(2, 3, topicV1, "hello")
	c.publish(2, 4, "vehicles/V9/telemetry", sampleLine("V9", 1, 9))
	c.publish(2, 5, topicV1, sampleLine("V1", 4, 5))
	c.wantPong()
	close(release)
	for id, code := range []byte{0, 0, 0x99, 0x87, 0} {
		c.wantPuback(uint16(id+1), code)
	}
	if n := len(arrived); n != 1 {
		t.Errorf("%d appends after the first, want 1", n)
	}
	f.store.wants(t, "V1 1", "V1 5", "V1 2")
}

func TestMQTTManyAtOnce(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, c := startMQTTClient(t, f, version)
		const n = 10 * receiveMaximum
		sent := c.flood(n, func(id int) string { return sampleLine("V1", id-n, 1) })
		c.wantPubacks(n)
		if err := <-sent; err != nil {
			t.Errorf("the flood: got %v, want no error", err)
		}
		if got := len(f.store.describe()); got != n {
			t.Errorf("the stored samples: got %d, want %d", got, n)
		}
	})
}

// The client sends the first message again, whose samples would be older than the state.
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
		t.Errorf("Shutdown: got %v, want no error", err)
	}
	f.store.wants(t)
}

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
			t.Errorf("Shutdown: got %v, want no error", err)
		}
		f.store.wants(t, "V1 1")
	})
}

// Each message is acknowledged, and the connection continues.
func TestMQTTRefuses(t *testing.T) {
	good := sampleLine("V1", 1, 1)
	for name, r := range map[string]struct {
		topic, payload string
		code           byte
		reason         string // "": none is counted
	}{
		"another's vehicle":       {"vehicles/V9/telemetry", sampleLine("V9", 1, 1), 0x87, "not_allowed"},
		"another topic":           {"vehicles/V1/state", good, 0x90, "topic"},
		"a longer topic":          {topicV1 + "/x", good, 0x90, "topic"},
		"a topic in a topic":      {"x/" + topicV1, good, 0x90, "topic"},
		"a long vid in the topic": {"vehicles/" + strings.Repeat("a", 257) + "/telemetry", good, 0x90, "topic"},
		"no vehicle in the topic": {"vehicles//telemetry", good, 0x90, "topic"},
		"wildcards":               {"vehicles/+/telemetry", good, 0x90, "topic"},
		"a shared topic":          {"$share/g/" + topicV1, good, 0x90, "topic"},
		"a very long topic":       {strings.Repeat("a", 65535), good, 0x90, "topic"},
		"about a broker":          {"$SYS/broker/connection/b/state", "1", 0, ""},
		"no JSON":                 {topicV1, "hello", 0x99, "malformed"},
		"another vid":             {topicV1, sampleLine("V2", 1, 1), 0x99, "vid_differs"},
		"nothing":                 {topicV1, "", 0x99, "empty"},
		"too large a sample":      {topicV1, strings.Repeat("x", maxSample+1), 0x99, "over_limit"},
		"too many samples":        {topicV1, strings.Repeat("\n", maxSamples+1), 0x99, "over_limit"},
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
					f.wantMetric(t, refused, ingest.MetricRefused, "reason", r.reason)
				}
				f.wantMetric(t, refused, ingest.MetricRefused)
			})
		})
	}
}

// A client of MQTT 3.1.1 does not know the limits that MQTT 5 announces, so it gets an
// acknowledgement.
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
				f.wantMetric(t, 1, ingest.MetricRefused, "reason", r.reason)
			})
		})
	}
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
