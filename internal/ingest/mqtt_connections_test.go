package ingest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

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
			if code := c.connect(login[0], login[1], 30); code != bad {
				t.Errorf("%s: CONNACK code %#x, want %#x", login[0], code, bad)
			}
			c.wantClosed(0)
		}
		f.wantMetric(t, 8, "carstate_mqtt_connections_refused_total", "reason", "credentials")
	})
}

func TestMQTTReadOnlyEndsConnections(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		var readOnly, down atomic.Bool
		f.ReadOnly = readOnly.Load
		f.Ready = func() error {
			if readOnly.Load() || down.Load() {
				return errDisk
			}
			return nil
		}
		_, addr := startMQTT(t, f.Config)
		refused := map[byte]byte{4: 3, 5: 0x88}[version]
		c := f.login(t, addr, version)
		c.publish(2, 1, topicV1, sampleLine("V1", 1, 1))
		c.wantPuback(1, 0)
		readOnly.Store(true)
		c.publish(2, 2, topicV1, sampleLine("V1", 2, 2))
		c.wantClosed(0x88)
		f.store.wants(t, "V1 1")
		f.wantMetric(t, 1, "carstate_ingest_request_duration_seconds", "outcome", "read_only")
		for _, reason := range []string{"read_only", "not_ready"} {
			f.wantMetric(t, 0, "carstate_mqtt_connections_refused_total", "reason", "not_ready")
			c := dialRaw(t, addr, version)
			if code := c.connect("car", f.key, 30); code != refused {
				t.Errorf("%s: got CONNACK code %#x, want %#x", reason, code, refused)
			}
			c.wantClosed(0)
			f.wantMetric(t, 1, "carstate_mqtt_connections_refused_total", "reason", reason)
			readOnly.Store(false)
			down.Store(true)
		}
	})
}

func TestMQTTClientIDsAreASourcesOwn(t *testing.T) {
	f := newFixture(t)
	_, otherKey := f.add(t, "other", access.AllVehicles())
	_, addr := startMQTT(t, f.Config)
	first := f.login(t, addr, 5)
	second := dialRaw(t, addr, 4).logIn("other", otherKey)
	first.wantPong()
	second.wantPong()
	third := f.login(t, addr, 4)
	third.wantPong()
	second.wantPong()
	first.wantClosed(0x8e)
}

func TestMQTTKeepAlive(t *testing.T) {
	testkit.Slow(t, "a keep-alive time is in whole seconds")
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		_, addr := startMQTT(t, f.Config)
		c := dialRaw(t, addr, version)
		c.connect("car", f.key, 1)
		c.wantClosed(0x8d)
	})
}

// A newer version wrote the source's record, so the server is unavailable, and the key not wrong.
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
		if code := c.connect("car", f.key, 30); code != login {
			t.Errorf("CONNACK code %#x, want %#x", code, login)
		}
		c.wantClosed(0)
		in.publish(2, 1, "vehicles/V1/telemetry", sampleLine("V1", 1, 1))
		in.wantClosed(later)
		f.store.wants(t)
	})
}

func TestMQTTConnectionsOfOneSource(t *testing.T) {
	bothVersions(t, func(t *testing.T, version byte) {
		f := newFixture(t)
		f.MaxConnections = 8
		_, addr := startMQTT(t, f.Config)
		const share = "the source has used up its share of the MQTT connections"
		_, key := f.add(t, "gateway", f.source.Vehicles)
		logIn := func(id, source, key string) (*rawClient, byte) {
			c := dialRaw(t, addr, version)
			c.id = id
			return c, c.connect(source, key, 30)
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
			t.Errorf("another source: got CONNACK code %#x, want 0", code)
		}
		f.wantMetric(t, 2, "carstate_mqtt_connections_refused_total", "reason", "share")
		if g, _ := f.Sources.Get("car"); g.Seen().Text != share {
			t.Errorf("got last refusal %q, want %q", g.Seen().Text, share)
		}
		for _, c := range []*rawClient{first, other} {
			c.write([]byte{disconnectType, 0})
			c.wantClosed(0)
		}
		testkit.Await(t, "another connection has its slot", func() bool {
			_, code := logIn("id9", "car", f.key)
			return code == 0
		})
	})
}

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
				dialRaw(t, addr, 5).write([]byte{0x10}[:i%2])
			}
			testkit.Await(t, "the strangers are there", func() bool { return f.metric(t, "carstate_mqtt_connections") == 1+strangers })
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

// The server neither waits for the bytes that such a packet announces, nor allocates them.
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
					t.Errorf("%s: got no end of the connection, want one", name)
				}
				break
			}
		}
	}
	f.login(t, addr, 4).wantPong()
}

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
		t.Errorf("Shutdown: got %v, want no error", err)
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
		t.Errorf("Shutdown: got %v, want %v", err, context.Canceled)
	}
	first, body, err := c.tryRead()
	if err == nil && first == disconnectType && body[0] == 0x89 {
		first, body, err = c.tryRead()
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection: got %#x % x, error %v; want its end", first, body, err)
	}
	f.store.wants(t)
}

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
