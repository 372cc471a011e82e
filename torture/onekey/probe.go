package onekey

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"carstate/torture/mqtt"
	"carstate/torture/openloop"
	"carstate/torture/row"
)

// Numbers of senders, and of samples that they send in a second, by each protocol.
const (
	senders = 16
	rate    = 200
	patient = 10 * time.Second
)

var protocols = []string{"HTTP", "MQTT"}

// probe sends as the source whose key is not stolen, and measures its delays. Each sender has its
// own connection.
type probe struct {
	a       *row.Attempt
	senders [][]openloop.Send // by protocol
	closers []func()

	mu           sync.Mutex // guards sent and failed
	sent, failed int
}

func newProbe(a *row.Attempt, t *target, key string) *probe {
	p := &probe{a: a, senders: make([][]openloop.Send, len(protocols))}
	for i := range senders {
		h := &byHTTP{t: t, key: key, vid: fmt.Sprint("Web", i),
			client: http.Client{Timeout: patient, Transport: &http.Transport{TLSClientConfig: t.config.Clone()}}}
		m := &byMQTT{t: t, key: key, vid: fmt.Sprint("Car", i)}
		p.senders[0], p.senders[1] = append(p.senders[0], h.send), append(p.senders[1], m.send)
		p.closers = append(p.closers, h.client.CloseIdleConnections, m.close)
	}
	return p
}

func (p *probe) close() {
	for _, closeOne := range p.closers {
		closeOne()
	}
}

// measure sends for a number of windows of one second. For each protocol, it returns the
// median of the windows' 99th percentiles.
func (p *probe) measure(ctx context.Context, windows int, during string) (p99 []time.Duration) {
	p99 = make([]time.Duration, len(protocols))
	var all sync.WaitGroup
	for i, of := range p.senders {
		all.Go(func() {
			each := openloop.Measure(ctx, windows, rate, of, func(err error) { p.note(err, during) })
			p99[i] = max(1, row.Percentile(each, 0.5))
		})
	}
	all.Wait()
	return p99
}

// note counts one sample. The parameter err is nil if the sample was acknowledged.
func (p *probe) note(err error, during string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
	if err != nil {
		if p.failed++; p.failed <= 5 {
			p.a.Wrong("during %s of one source, another one's sample: %v", during, err)
		}
	}
}

// byHTTP sends the samples of the probe over HTTP/1.1.
type byHTTP struct {
	t        *target
	key, vid string
	client   http.Client
}

func (s *byHTTP) send(ctx context.Context) error {
	body := fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50}}`, s.vid, time.Now().UnixMilli())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.t.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("HTTP %d %.200s", resp.StatusCode, text)
	}
	return errors.Join(err, resp.Body.Close())
}

// byMQTT sends messages of about 10 KB. Each message needs more memory than the amount that is
// reserved for every connection.
type byMQTT struct {
	t        *target
	key, vid string
	conn     net.Conn // nil: not connected
	in       *bufio.Reader
	id       uint16
}

var padding = strings.Repeat(" \n", 5000)

func (s *byMQTT) close() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

func (s *byMQTT) send(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.conn == nil {
		if s.conn, s.in, err = login(ctx, s.t, s.vid, "other", s.key); err != nil {
			return err
		}
	}
	if err := s.conn.SetDeadline(time.Now().Add(patient)); err != nil {
		return err
	}
	s.id = max(1, s.id+1)
	sample := fmt.Sprintf(`{"time":%d,"signals":{"Vehicle.Speed":50}}`, time.Now().UnixMilli())
	_, err1 := s.conn.Write(mqtt.Publish(4, 2, s.id, "vehicles/"+s.vid+"/telemetry", padding+sample))
	answer := make([]byte, 4)
	_, err2 := io.ReadFull(s.in, answer)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("MQTT: %w", err)
	}
	if want := []byte{0x40, 2, byte(s.id >> 8), byte(s.id)}; string(answer) != string(want) {
		return fmt.Errorf("MQTT: the answer to message %d is % x", s.id, answer)
	}
	return nil
}
