package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/lograte"
)

// MQTT receives telemetry by MQTT 3.1.1 and 5, on topic vehicles/VID/telemetry with QoS 0 or 1.
// User name and password are the name and key of a source. The server is not a broker: clients
// cannot subscribe, no message is retained (the flag has no effect), wills are dropped, there are
// no topic aliases, and a session ends with its connection. The messages of a bridge about its
// broker ($SYS/) are acknowledged and dropped.
//
// A PUBACK that reports success means that the accepted samples of the message are on disk. Refused
// lines are counted, and the PUBACK still reports success, since sending them again would not help.
// Under MQTT 5, the reason string of the PUBACK names the unknown signals and the unused values.
//
// Some messages are refused as a whole. Such a message is acknowledged, too, because a client would
// send it again for ever. Under MQTT 5 the PUBACK has a reason code:
//
//	0x87  the source may not write for the vehicle, or the vehicle was forgotten
//	0x90  the topic is wrong
//	0x97  the vehicle would exceed the limit of vehicles
//	0x99  no line was valid, or the message exceeds a limit
//
// A PUBACK of MQTT 3.1.1 has no reason, and QoS 0 has no PUBACK, so operators see why (see
// intake.note). A message of MQTT 3.1.1 with QoS 2 or of more than 1 MiB is refused in the same
// way; MQTT 5 has told the client these limits, and the connection is closed.
//
// If the store fails, the connection is closed without an acknowledgement, and the client sends the
// message again. The key is checked again at every message, so the connection of a source that was
// removed is closed at its next message. While the memory for telemetry is used up, nothing is read
// from connections that need more, so their clients wait. A message that exceeds the rate of its
// source gets 0x97 if it was sent by MQTT 5 with QoS 1. Any other such message waits, and nothing
// is read from its connection, until the rate allows the message; if that takes longer than a
// minute, the connection is closed. If a packet arrives too slowly, its connection is closed.
type MQTT struct {
	in      *intake
	quotas  *packetQuotas
	slots   *quota // connections that have logged in
	guard   *listen.Guard
	end     sync.Once
	refused *prometheus.CounterVec // connections, by reason
	// unhandled limits the number of log lines about packets on which a goroutine panics, because a
	// client could send such packets without end.
	unhandled lograte.Warning

	mu      sync.Mutex // guards the fields below
	clients map[clientID]*conn
	ending  bool // Shutdown has begun: each connection reads no more
	// The newest context in which messages are stored.
	storing      context.Context
	storingEnd   context.CancelFunc
	storingSince time.Time

	// ctx ends when the time for a graceful shutdown is over.
	ctx     context.Context
	cancel  context.CancelFunc
	serving atomic.Int64 // calls of serve
	began   time.Time
}

// NewMQTT returns an MQTT server for telemetry. It serves nothing until [MQTT.Serve] is called,
// but needs a Shutdown in any case.
func NewMQTT(c Config) *MQTT {
	m := &MQTT{in: newIntake(c, "mqtt"), clients: make(map[clientID]*conn), began: time.Now()}
	m.quotas = newPacketQuotas(m.in.MaxBytes, m.in.grace)
	m.slots = newQuota(m.in.MaxConnections)
	m.in.gauge(m.quotas.inUse)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	auto := promauto.With(m.in.Registry)
	m.refused = auto.NewCounterVec(prometheus.CounterOpts{
		Name: MetricConnectionsRefused,
		Help: "MQTT connections that were refused, by reason.",
	}, []string{"reason"})
	m.refused.WithLabelValues("not_ready") // starts at 0, because an alert uses its rate
	m.guard = listen.New(listen.Config{
		Max: m.in.MaxConnections, SendBuffer: sendBuffer, Dropped: m.refused.WithLabelValues("full").Inc, Log: m.in.Log,
	})
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_mqtt_connections",
		Help: "MQTT connections that are open.",
	}, func() float64 { return float64(m.guard.Count()) })
	return m
}

// Serve serves the connections of l until [MQTT.Shutdown], which closes l. It may be called for
// several listeners. Its errors are those of [listen.Guard.Serve].
func (m *MQTT) Serve(l net.Listener) error { return m.guard.Serve(m.guard.Listener(l), m.serve) }

// ServeTLS is like Serve, but uses TLS.
func (m *MQTT) ServeTLS(l net.Listener) error {
	return m.guard.Serve(tls.NewListener(m.guard.Listener(l), m.in.TLS), m.serve)
}

// serve serves a connection until it ends, and then closes it.
func (m *MQTT) serve(nc net.Conn) {
	defer m.serving.Add(-1)
	// A connection that has ended is still served until its messages are stored, so more than
	// MaxConnections may be served.
	if m.serving.Add(1) > int64(2*m.in.MaxConnections) {
		m.refused.WithLabelValues("full").Inc()
		_ = nc.Close()
		return
	}
	c := m.newConn(nc)
	var why *closing
	defer func() {
		// A packet of one client must not crash the process.
		if p := recover(); p != nil {
			// The panic value may contain part of the packet, unless it is a runtime error.
			what := fmt.Sprintf("a %T", p)
			if e, ok := p.(runtime.Error); ok {
				what = e.Error()
			}
			m.unhandled.Log(m.in.Log, "closed an MQTT connection: its packet cannot be handled", "panic", what)
		}
		// The client may have gone before its messages are acknowledged. They are still stored.
		c.queue.wait()
		if why != nil {
			c.part(why)
		}
		_ = c.Close()
		m.leave(c)
		c.releaseMemory()
		c.slot.release()
	}()
	err := m.logIn(c)
	for err == nil {
		var first byte
		var body []byte
		if first, body, err = c.readPacket(); err == nil && first != 0 {
			err = m.handle(c, first, body)
		}
		c.releaseMemory()
	}
	if why, _ = errors.AsType[*closing](err); c.takenOver.Load() {
		why = &closing{sessionTakenOver, "another client has connected with the same client identifier"}
	}
}

// Shutdown stops listening, stores and acknowledges the messages that have arrived, and closes
// every connection. If ctx ends first, it closes the connections at once and returns the error of
// ctx. A second call waits until the first has finished, and returns nil.
func (m *MQTT) Shutdown(ctx context.Context) (err error) {
	m.end.Do(func() {
		m.mu.Lock()
		m.ending = true
		for _, c := range m.clients {
			c.stop()
		}
		m.mu.Unlock()
		err = m.guard.Shutdown(ctx)
		m.cancel()
		m.guard.Wait()
	})
	return err
}
