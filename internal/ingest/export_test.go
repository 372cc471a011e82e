package ingest

import (
	"net"
	"time"
)

func (c *Config) SetGrace(d time.Duration) { c.grace = d }

func (m *MQTT) WaitingForMemory() int {
	return m.quotas.receiving.queued() + m.quotas.finishing.queued() + m.quotas.processing.queued()
}

func (m *MQTT) Receiving() (bytes, most int) {
	return m.quotas.receiving.inUse(), m.quotas.receiving.size
}

func (m *MQTT) Queued() (bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.clients {
		c.queue.mu.Lock()
		bytes += c.queue.bytes
		c.queue.mu.Unlock()
	}
	return bytes
}

func (m *MQTT) ReadConnect(c net.Conn, timeout time.Duration) error {
	_, _, err := m.newConn(c).readConnect(timeout)
	return err
}
