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

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/lograte"
)

// MQTT receives telemetry on topic vehicles/VID/telemetry (docs/telemetry.md). A PUBACK means that
// the accepted samples are on disk, or that the message can never be accepted (DESIGN.md).
type MQTT struct {
	in    *intake
	slots *quota // connections that have logged in
	// Quotas of memory; see DESIGN.md, "Three parts".
	receiving  *quota // packets that are arriving
	finishing  *quota // what receiving had no room for
	processing *quota // packets that have arrived, and unacknowledged samples

	guard     *listen.Guard
	refused   *prometheus.CounterVec // by reason
	unhandled lograte.Warning        // a client could cause panics without end

	mu      sync.Mutex // guards the fields below
	clients map[clientID]*conn
	ending  bool
	storing context.Context // shared by the calls of the store in one second

	ctx     context.Context // ends with the time for a graceful shutdown
	cancel  context.CancelFunc
	serving atomic.Int64
	began   time.Time
}

// NewMQTT's server needs a Shutdown even if it is not served.
func NewMQTT(c Config) *MQTT {
	m := &MQTT{in: newIntake(c, "mqtt"), clients: make(map[clientID]*conn), began: time.Now()}
	half, eighth := m.in.MaxBytes/2, m.in.MaxBytes/16
	m.receiving, m.finishing, m.processing = newQuota(half-eighth), newQuota(eighth), newQuota(m.in.MaxBytes-half)
	m.slots = newQuota(m.in.MaxConnections)
	m.in.heldBytes(func() int { return m.receiving.inUse() + m.finishing.inUse() + m.processing.inUse() })
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.storing = m.ctx
	m.refused = m.in.counters(MetricConnectionsRefused, "MQTT connections that were refused, by reason.")
	m.refused.WithLabelValues("not_ready") // starts at 0, because an alert uses its rate
	m.guard = listen.New(listen.Config{
		Max: m.in.MaxConnections, SendBuffer: sendBuffer, Dropped: m.refused.WithLabelValues("full").Inc, Log: m.in.Log,
	})
	m.in.gauge("carstate_mqtt_connections", "MQTT connections that are open.", func() int { return m.guard.Count() })
	return m
}

// Serve may be called for several listeners, which Shutdown closes.
func (m *MQTT) Serve(l net.Listener) error { return m.guard.Serve(m.guard.Listener(l), m.serve) }

func (m *MQTT) ServeTLS(l net.Listener) error {
	return m.guard.Serve(tls.NewListener(m.guard.Listener(l), m.in.TLS), m.serve)
}

func (m *MQTT) serve(nc net.Conn) {
	defer m.serving.Add(-1)
	// serving includes ended connections until their messages are stored.
	if m.serving.Add(1) > int64(2*m.in.MaxConnections) {
		m.refused.WithLabelValues("full").Inc()
		_ = nc.Close()
		return
	}
	c := m.newConn(nc)
	var why *closing
	defer func() {
		if p := recover(); p != nil {
			// Unlike a runtime error, a panic value may contain part of the packet.
			what := fmt.Sprintf("a %T", p)
			if e, ok := p.(runtime.Error); ok {
				what = e.Error()
			}
			m.unhandled.Log(m.in.Log, "closed an MQTT connection: its packet cannot be handled", "panic", what)
		}
		// Even if the client has gone, its messages are stored.
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
	why, _ = errors.AsType[*closing](errors.Join(context.Cause(c.ctx), err))
}

// Shutdown stores and acknowledges what has arrived, unless ctx ends. A second call waits, too.
func (m *MQTT) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	m.ending = true
	for _, c := range m.clients {
		c.stop(nil)
	}
	m.mu.Unlock()
	err := m.guard.Shutdown(ctx)
	m.cancel()
	m.guard.Wait()
	return err
}
