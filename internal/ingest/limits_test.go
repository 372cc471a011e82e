package ingest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

func (c *Config) SetGrace(d time.Duration) { c.grace = d }

func (m *MQTT) WaitingForMemory() int {
	return m.receiving.queued() + m.finishing.queued() + m.processing.queued()
}

func (m *MQTT) Receiving() (bytes, most int) {
	return m.receiving.inUse(), m.receiving.size
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

func (q *quota) queued() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, claims := range q.waiting {
		n += len(claims)
	}
	return n
}

func TestQuotaIsNeverExceeded(t *testing.T) {
	q := newQuota(1000)
	var running sync.WaitGroup
	for w := range 8 {
		source := fmt.Sprint(w / 2)
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			stopped := make(chan struct{})
			close(stopped)
			for range 2000 {
				stop := stopped
				if rnd.IntN(2) == 0 {
					stop = nil
				}
				n, ok := q.acquire(source, 1+rnd.IntN(500), stop)
				if used := q.inUse(); used > 1000 || ok && used < n {
					t.Errorf("got %d in use, want %d to 1000", used, n)
				}
				q.release(source, n)
			}
		})
	}
	running.Wait()
	if q.inUse() != 0 || q.queued() != 0 || len(q.held)+len(q.waiting)+len(q.turn) != 0 {
		t.Errorf("in the end: got %d in use and %d waiting, want none; held %v, waiting %v, turn %v",
			q.inUse(), q.queued(), q.held, q.waiting, q.turn)
	}
}
