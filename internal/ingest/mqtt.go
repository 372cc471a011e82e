package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/lograte"
	"carstate/internal/netguard"
)

// Limits of an MQTT connection.
const (
	maxPacket      = 1 << 20          // bytes of a packet
	connectTimeout = 10 * time.Second // from accepting a connection to its CONNECT, TLS included
	writeTimeout   = 10 * time.Second // of a packet to a client, which is never large
	maxKeepAlive   = 600              // seconds; a connection may be silent for half as long again
	receiveMaximum = 128              // messages that a client may have unacknowledged
	maxAliases     = 64               // topic aliases of a connection, up to 300 bytes each
)

// MQTT takes telemetry by MQTT 3.1.1 and 5, on topic vehicles/VID/telemetry
// with QoS 0 or 1. User name and password are a source's name and key. It is a
// front door and no broker: nobody can subscribe, nothing is retained (the flag
// has no effect), wills are dropped, and no session outlives its connection.
//
// A PUBACK that reports success means that the message's samples are on disk;
// if some of its lines were refused, they are counted and the PUBACK still
// reports success, since sending them again would not help. Under MQTT 5 its
// reason string names the signals that are not known. A message that is refused
// gets, under MQTT 5 with QoS 1, a PUBACK that says why: 0x87 for another's
// vehicle, 0x90 for another topic, 0x99 if no line was good. MQTT
// 3.1.1 cannot say no, so there the connection is closed, as it is for QoS 0
// (under MQTT 5 with a reason); only a bad payload with QoS 0 is dropped and
// counted. If the store does not take a sample, the connection is closed
// without an acknowledgement, and the client sends again. A source that was
// removed is found out at its next message. While there is no room for more,
// nothing is read, and so clients wait. A message that is over its source's rate gets
// 0x97; where that cannot be said, nothing is read until the rate allows it. A packet that
// comes too slowly ends its connection.
type MQTT struct {
	in      *intake
	rooms   *rooms
	places  *budget // the connections that have logged in
	guard   *netguard.Guard
	server  *mqtt.Server
	start   sync.Once
	refused *prometheus.CounterVec // connections, by reason
	// unhandled are packets that the library cannot read and does not refuse. A car
	// could send them all the time.
	unhandled lograte.Warning

	// ctx ends when the time for a graceful end is over.
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex // guards what follows
	closing   bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	work      sync.WaitGroup // counts conns; added to under mu, before closing
	ended     chan struct{}  // closed when Shutdown is done
}

// NewMQTT makes the front door. It serves nothing until [MQTT.Serve].
func NewMQTT(c Config) *MQTT {
	m := &MQTT{
		in:        newIntake(c, "mqtt"),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
		ended:     make(chan struct{}),
	}
	m.rooms = newRooms(m.in.MaxBytes, m.in.grace)
	m.places = newBudget(m.in.MaxConnections)
	m.in.gauge(m.rooms.taken)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carstate_mqtt_connections_refused_total",
		Help: "MQTT connections that were refused, by reason.",
	}, []string{"reason"})
	m.refused.WithLabelValues("not_ready") // an alert looks at its rate
	m.guard = netguard.New(netguard.Config{
		Max: m.in.MaxConnections, SendBuffer: sendBuffer, Dropped: m.refused.WithLabelValues("full").Inc, Log: m.in.Log,
	})
	m.in.Registry.MustRegister(m.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_mqtt_connections",
		Help: "MQTT connections that are open.",
	}, func() float64 { return float64(m.guard.Count()) }))

	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumQos = 1
	capabilities.MaximumPacketSize = maxPacket
	capabilities.MaximumSessionExpiryInterval = 0
	capabilities.MaximumClientWritesPending = 1 // nothing is ever published to a client; the default costs 64 KiB each
	capabilities.MinimumProtocolVersion = 4
	capabilities.ReceiveMaximum = receiveMaximum
	capabilities.MaximumInflight = receiveMaximum
	capabilities.TopicAliasMaximum = maxAliases
	// Otherwise a PUBACK repeats the message's user properties, and with them
	// a reason code that MQTT does not know.
	capabilities.Compatibilities.NoInheritedPropertiesOnAck = true
	m.server = mqtt.New(&mqtt.Options{
		Capabilities: capabilities,
		// A connection has a buffer of its own, behind which this one is idle.
		ClientNetReadBufferSize: 16,
		// The library logs whole packets, passwords included.
		Logger: slog.New(slog.DiscardHandler),
		// Nobody can read $SYS, and filling it stops the world each time.
		SysTopicResendInterval: math.MaxInt32,
	})
	if err := m.server.AddHook(&hook{m: m}, nil); err != nil {
		panic(err) // the hook has no Init that could fail
	}
	return m
}

// Serve serves l until [MQTT.Shutdown], after which it returns [net.ErrClosed].
// It may be called for several listeners.
func (m *MQTT) Serve(l net.Listener) error { return m.serveGuarded(m.guard.Listener(l)) }

// ServeTLS is Serve with the configuration's TLS.
func (m *MQTT) ServeTLS(l net.Listener) error {
	return m.serveGuarded(tls.NewListener(m.guard.Listener(l), m.in.TLS))
}

func (m *MQTT) serveGuarded(l net.Listener) error {
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		return errors.Join(net.ErrClosed, l.Close())
	}
	m.listeners[l] = struct{}{}
	m.mu.Unlock()

	// The library's own listeners are not used: they end silently at the
	// first error and let a client that sends nothing stay for ever.
	var err error
	m.start.Do(func() { err = m.server.Serve() })
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			m.accept(c)
		case m.isClosing():
			return net.ErrClosed
		default:
			return err
		}
	}
}

// accept starts serving nc, unless the service is shutting down.
func (m *MQTT) accept(nc net.Conn) {
	c := newConn(nc, m.rooms)
	m.mu.Lock()
	defer m.mu.Unlock()
	// A connection that has ended counts here until its messages are stored.
	if m.closing || len(m.conns) >= 2*m.in.MaxConnections {
		if !m.closing {
			m.refused.WithLabelValues("full").Inc()
		}
		_ = nc.Close()
		return
	}
	m.conns[c] = struct{}{}
	m.work.Add(1)
	go m.serve(c)
}

// serve serves one connection to its end.
func (m *MQTT) serve(c *conn) {
	defer func() {
		// What one client sends must not end the process.
		if p := recover(); p != nil {
			// The value may hold a part of the packet, unless the runtime made it.
			what := fmt.Sprintf("a %T", p)
			if e, ok := p.(runtime.Error); ok {
				what = e.Error()
			}
			m.unhandled.Log(m.in.Log, "an MQTT connection was dropped: its packet cannot be handled", "panic", what)
		}
		_ = c.Close()
		// A client may leave without waiting; what it sent is still stored.
		c.queue.wait()
		c.letGo()
		c.place.end()
		m.mu.Lock()
		delete(m.conns, c)
		m.mu.Unlock()
		m.work.Done()
	}()
	if err := c.begin(connectTimeout); err != nil {
		if netguard.Under(c).Become(netguard.Silent) { // otherwise it was evicted, and is counted
			m.refused.WithLabelValues("no_connect").Inc()
		}
		return
	}
	// How a connection ends is the client's business; what we refuse is
	// counted where it is refused.
	_ = m.server.EstablishConnection("mqtt", c)
}

// Shutdown stops listening, acknowledges the messages that are being stored,
// and closes every connection; when ctx ends first, it cuts them off. A second
// call waits for the first.
func (m *MQTT) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	already := m.closing
	m.closing = true
	for l := range m.listeners {
		_ = l.Close()
	}
	for c := range m.conns {
		c.stopReading()
	}
	m.mu.Unlock()
	if already {
		<-m.ended
		return nil
	}
	defer close(m.ended)

	done := make(chan struct{})
	go func() {
		m.work.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		m.cancel()
		m.mu.Lock()
		for c := range m.conns {
			_ = c.Close()
		}
		m.mu.Unlock()
		<-done
	}
	m.cancel()
	return errors.Join(err, m.server.Close())
}

func (m *MQTT) isClosing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closing
}
